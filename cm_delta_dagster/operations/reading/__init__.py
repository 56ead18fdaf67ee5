"""Operations that read rows, changes, streams and history."""
