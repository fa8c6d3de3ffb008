CREATE TABLE IF NOT EXISTS "keymill_route" ( -- keymill VERSION
  name TEXT NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL, -- the version in the text, which only rises
  table_text TEXT NOT NULL -- TOML or JSON
) WITHOUT ROWID;
