-- An append as one statement: one entry of a session whose row the caller has seen. Everything but the position in the
-- feed was computed by the caller, and counts only if nobody changed the session since; else nothing is done and NULL
-- is returned. The two checks that depend on the position come as the packed columns before and behind it.
-- Made anew by every migration, so that it always fits this version. Needs crc32(), which PostgreSQL 18 has.

-- An integer as MessagePack writes it.
CREATE OR REPLACE FUNCTION :schema.packed(v BIGINT) RETURNS BYTEA LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN v < 128 THEN substr(int8send(v), 8) WHEN v < 256 THEN '\xcc'::bytea || substr(int8send(v), 8)
    WHEN v < 65536 THEN '\xcd'::bytea || substr(int8send(v), 7)
    WHEN v < 4294967296 THEN '\xce'::bytea || substr(int8send(v), 5) ELSE '\xcf'::bytea || int8send(v) END $$;

CREATE OR REPLACE FUNCTION :schema.append_known(
  p_sync TEXT, p_lock_ms TEXT, p_scope TEXT, p_kind TEXT, p_ikey TEXT, p_body BYTEA, p_raw BYTEA, p_entry_rest BYTEA,
  p_rest BYTEA, p_before BYTEA, p_behind BYTEA, p_feed_before BYTEA, p_feed_behind BYTEA, p BIGINT[]
) RETURNS BIGINT LANGUAGE plpgsql AS $$
-- p: 1 sid, 2 its check, 3 updated_ms, 4 key of the entry, 5 at_ms, 6 turns, 7 check of the entry, 8 branch, 9 seq,
-- 10 check of the idempotency key or 0, 11 rank, 12 messages, 13 updated, 14 the epoch or 0: to be looked up
DECLARE
  v_position BIGINT;
  v_packed BYTEA;
  v_epoch INTEGER := p[14];
  v_own BIGINT := pg_current_xact_id()::text::bigint;
  v_xid BIGINT;
  v_set TEXT := set_config('takeback.scope', 's' || p_scope, true) || set_config('enable_seqscan', 'off', true);
BEGIN
  IF p_lock_ms IS NOT NULL THEN
    v_set := set_config('lock_timeout', p_lock_ms, true);
  END IF;
  IF p_sync IS NOT NULL THEN
    v_set := set_config('synchronous_commit', p_sync, true);
  END IF;
  IF p_ikey IS NOT NULL AND EXISTS (
      SELECT 1 FROM :schema.idempotency WHERE scope = p_scope AND session = p[1] AND ikey = p_ikey) THEN
    RETURN NULL;
  END IF;
  v_position := nextval(':schema.feed_number');
  IF v_position <> p[13] + 1 THEN  -- else it was the last one to change
    IF EXISTS (SELECT 1 FROM :schema.session WHERE scope = p_scope AND rank > p[11]) THEN
      RETURN NULL;  -- another rank has begun: the operation gives it to the session
    END IF;
  END IF;
  IF v_position - (p[11] & 68719476735) >= 2048 THEN
    RETURN NULL;  -- this rank is full (ops/sessions.py): the operation begins the next one
  END IF;
  v_packed := :schema.packed(v_position);
  IF v_epoch = 0 THEN
    v_epoch := :schema.current_epoch();
  END IF;
  UPDATE :schema.session s SET updated_ms = p[3], updated = v_position, seq = p[9], messages = p[12], rest = p_rest,
    chk = crc32(p_before || v_packed || p_behind), epoch = v_epoch,
    xid = CASE WHEN s.epoch = v_epoch THEN greatest(s.xid, v_own) ELSE v_own END  -- as own_order does
    WHERE s.scope = p_scope AND s.sid = p[1] AND s.chk = p[2] RETURNING s.xid INTO v_xid;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  INSERT INTO :schema.entry (scope, key, kind, at_ms, turns, body, raw, rest, chk)
    VALUES (p_scope, p[4], p_kind, p[5], p[6], p_body, p_raw, p_entry_rest, p[7]);
  INSERT INTO :schema.feed (scope, pos, kind, session, branch, first_seq, last_seq, chk, epoch, xid) VALUES (
    p_scope, v_position, 'entries', p[1], p[8], p[9], p[9], crc32(p_feed_before || v_packed || p_feed_behind),
    v_epoch, v_xid);
  IF p_ikey IS NOT NULL THEN
    INSERT INTO :schema.idempotency (scope, session, ikey, branch, seq, last_seq, kind, id, digest, at_ms, chk)
      VALUES (p_scope, p[1], p_ikey, p[8], p[9], p[9], 'entries', '', 0, p[5], p[10]);
  END IF;
  RETURN v_position;
END $$;
