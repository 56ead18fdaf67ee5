"""How databases of earlier releases become ones of this release, a module for each revision that is taken in.

``migrate`` lists them. A new database never goes through them: it is created from ``schema``.
"""
