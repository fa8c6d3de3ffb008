CREATE TABLE IF NOT EXISTS "keymill_segment" ( -- keymill VERSION
  name TEXT NOT NULL PRIMARY KEY,
  date INTEGER NOT NULL DEFAULT 0, -- of a serial, 0 else
  next INTEGER NOT NULL, -- lowest number not yet reserved; -9223372036854775808: all are
  state TEXT NOT NULL DEFAULT 'open', -- open, beginning, leased, closed
  stores INTEGER NOT NULL DEFAULT 1, -- how many stores share the numbers
  store INTEGER NOT NULL DEFAULT 1, -- which of them, from 1
  chunk INTEGER NOT NULL DEFAULT 0, -- numbers at a time, 0 with one store
  writer INTEGER NOT NULL DEFAULT 0, -- random number of the mill that reserved last
  updated_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) WITHOUT ROWID;
