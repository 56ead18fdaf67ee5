"""Operations that write rows."""
