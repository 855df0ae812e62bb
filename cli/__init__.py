"""The command line, one file per verb.

Nothing heavy is imported before a verb needs it.

This folder is installed as the package ``tensorcomp_cli``, so that none called ``cli`` appears;
its imports are relative because type checkers see it under the folder's name.
"""
