"""Operations on tables as a whole: create, drop, rename, purge, commit mode."""
