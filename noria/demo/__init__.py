"""The demonstration: the whole loop on a small real model, told stage by stage.

`noria.demo.runner.run(settings, console)` is all of it. It drives the platform as its users do, through HTTP,
through the functions behind the commands and through SQL, and keeps no way of its own around any of them.
"""
