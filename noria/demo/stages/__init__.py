"""The stages of the demonstration in their order, one file each.

A stage takes what earlier stages made, says what it does on the console, puts its figures into its record,
and raises StageFailed when what it saw is not what it says.
"""
