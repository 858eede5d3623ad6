"""GNU `ls` in stages: `entry` reads, `order` sorts, `columns` writes text, `records` the structured formats."""
