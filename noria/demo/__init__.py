"""The demonstration: the whole loop on a small real model, told stage by stage.

It drives the platform as its users do, through HTTP, through the functions behind the commands and through
SQL, and keeps no way of its own around any of them. `noria.demo.runner.run` is all of it.
"""
