"""What an adapter is, where its bytes live, and which adapters are resident."""
