CREATE TABLE IF NOT EXISTS "keymill_worker" ( -- keymill VERSION
  pool TEXT NOT NULL,
  slot INTEGER NOT NULL, -- 4611686018427387904: the layout of the pool
  token INTEGER NOT NULL, -- changes with each owner and each renewal
  mark INTEGER NOT NULL, -- first tick that no id has, where the next owner begins
  ends_at INTEGER NOT NULL, -- milliseconds since 1970, 0 where free
  owner TEXT NOT NULL,
  layout TEXT NOT NULL,
  PRIMARY KEY (pool, slot)
) WITHOUT ROWID;
