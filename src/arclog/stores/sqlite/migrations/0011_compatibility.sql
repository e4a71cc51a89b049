-- oldest: 11
-- The oldest schema that code must know to use this store. A migration that older code cannot live with raises it by a
-- line `-- oldest: N`; without such a line, servers of the release before go on beside new ones.
CREATE TABLE compatibility (
    oldest INTEGER NOT NULL
) STRICT;
INSERT INTO compatibility (oldest) VALUES (11);
