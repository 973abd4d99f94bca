-- An append as one statement (append.py): takes a position in the feed, updates the session, adds the entry and the
-- change. Nothing is written, and no row returned, if the session has changed since it was read, if the idempotency key
-- was used, or if the session is to get another rank: one that is not full is its own still if its change was the last
-- of all, or if nobody has a higher one. Lines marked as keyed are left out without an idempotency key.
WITH n AS (
  SELECT n.pos, coalesce($1::int, :schema.current_epoch()) AS epoch, pg_current_xact_id()::text::bigint AS xid,
    -- as MessagePack writes an integer
    CASE WHEN n.pos < 128 THEN substr(int8send(n.pos), 8) WHEN n.pos < 256 THEN '\xcc' || substr(int8send(n.pos), 8)
      WHEN n.pos < 65536 THEN '\xcd' || substr(int8send(n.pos), 7)
      WHEN n.pos < 4294967296 THEN '\xce' || substr(int8send(n.pos), 5) ELSE '\xcf' || int8send(n.pos) END AS packed
  FROM (SELECT nextval(':schema.feed_number') AS pos) n
),
s AS (
  UPDATE :schema.session s SET updated_ms = $2::bigint, updated = n.pos, seq = $3::bigint, messages = $4::bigint,
    rest = $5::bytea, chk = crc32($6::bytea || n.packed || $7::bytea), epoch = n.epoch,
    xid = CASE WHEN s.epoch = n.epoch THEN greatest(s.xid, n.xid) ELSE n.xid END  -- as own_order does
  FROM n
  WHERE s.scope = $8::text AND s.sid = $9::bigint AND s.chk = $10::bigint AND n.pos < $11::bigint
    AND (n.pos = $12::bigint + 1
      OR NOT EXISTS (SELECT 1 FROM :schema.session r WHERE r.scope = $8::text AND r.rank > $13::bigint))
    AND NOT EXISTS (SELECT 1 FROM :schema.idempotency i  -- keyed
      WHERE i.scope = $8::text AND i.session = $9::bigint AND i.ikey = $25::text)  -- keyed
  RETURNING n.pos, n.packed, s.epoch, s.xid
),
e AS (
  INSERT INTO :schema.entry (scope, key, kind, at_ms, turns, body, raw, rest, chk)
  SELECT $8::text, $14::bigint, $15::text, $16::bigint, $17::bigint, $18::bytea, $19::bytea, $20::bytea, $21::bigint
  FROM s
),
k AS (  -- keyed
  INSERT INTO :schema.idempotency (scope, session, ikey, branch, seq, last_seq, kind, id, digest, at_ms, chk)  -- keyed
  SELECT $8::text, $9::bigint, $25::text, $22::bigint, $3::bigint, $3::bigint, 'entries', '', 0, $16::bigint,  -- keyed
    $26::bigint FROM s  -- keyed
),  -- keyed
f AS (
  INSERT INTO :schema.feed (scope, pos, kind, session, branch, first_seq, last_seq, chk, epoch, xid)
  SELECT $8::text, s.pos, 'entries', $9::bigint, $22::bigint, $3::bigint, $3::bigint,
    crc32($23::bytea || s.packed || $24::bytea), s.epoch, s.xid FROM s
)
SELECT pos FROM s
