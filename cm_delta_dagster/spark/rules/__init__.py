"""What holds for rows that are written: values that the table gives, NOT NULL, lengths and constraints."""
