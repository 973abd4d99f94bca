-- An append as one statement: lock the session, chain the entries, write them with their checks, move the head.
-- It does what ops/entries.py does for an attached head and entries without ids of their own and without blobs; for
-- anything else it changes nothing and gives no row, and the operation runs as a transaction of several statements.
-- Checks are computed by plain expressions before the INSERTs: as parts of those they would be planned every time.
-- Made anew by every migration, so that it always fits this version. Needs crc32(), which PostgreSQL 18 has.

-- MessagePack, as far as row checks need it. The loop is faster than it looks: expressions are set up once per
-- transaction, and one large expression instead of many small ones would cost more than all the rest.
CREATE OR REPLACE FUNCTION :schema.packed(VARIADIC p BIGINT[]) RETURNS BYTEA LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  v_found BYTEA := '';
  v BIGINT;
  w INT;
BEGIN
  FOREACH v IN ARRAY p LOOP
    w := 1 + width_bucket(v, '{-2147483648,-32768,-128,-32,128,256,65536,4294967296}'::bigint[]);
    v_found := v_found || ('{"\\xd3","\\xd2","\\xd1","\\xd0","\\x","\\xcc","\\xcd","\\xce","\\xcf"}'::bytea[])[w]
      || substr(int8send(v), ('{1,5,7,8,8,8,7,5,1}'::int[])[w]);
  END LOOP;
  RETURN v_found;
END $$;
CREATE OR REPLACE FUNCTION :schema.packed(v TEXT) RETURNS BYTEA LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  n CONSTANT INT := octet_length(v);
BEGIN
  IF n < 32 THEN
    RETURN substr(int4send(160 + n), 4) || convert_to(v, 'UTF8');
  ELSIF n < 256 THEN
    RETURN '\xd9'::bytea || substr(int4send(n), 4) || convert_to(v, 'UTF8');
  ELSIF n < 65536 THEN
    RETURN '\xda'::bytea || substr(int4send(n), 3) || convert_to(v, 'UTF8');
  END IF;
  RETURN '\xdb'::bytea || int4send(n) || convert_to(v, 'UTF8');
END $$;
CREATE OR REPLACE FUNCTION :schema.packed(v BYTEA) RETURNS BYTEA LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  n CONSTANT INT := length(v);
BEGIN
  IF v IS NULL THEN
    RETURN '\xc0'::bytea;
  ELSIF n < 256 THEN
    RETURN '\xc4'::bytea || substr(int4send(n), 4) || v;
  ELSIF n < 65536 THEN
    RETURN '\xc5'::bytea || substr(int4send(n), 3) || v;
  END IF;
  RETURN '\xc6'::bytea || int4send(n) || v;
END $$;

CREATE OR REPLACE FUNCTION :schema.head_check(s :schema.session) RETURNS BIGINT LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN crc32('\xdc0019'::bytea || :schema.packed(s.sid, s.head_branch) || :schema.packed(s.head_uid)
    || :schema.packed(s.head_fork, s.head_seq, s.attached) || '\xc420'::bytea || s.head_hash
    || :schema.packed(s.messages, s.turns, s.tool_calls, s.tool_failures, s.input_tokens, s.output_tokens,
      s.cache_read_tokens, s.cache_write_tokens, s.reasoning_tokens, s.cost_nano, s.active_ms, s.work_seq, s.branches,
      s.revision, s.updated, s.updated_ms)
    || CASE WHEN s.message_ms IS NULL THEN '\xc0'::bytea || :schema.packed(s.rank)
      ELSE :schema.packed(s.message_ms, s.rank) END);
END $$;

CREATE OR REPLACE FUNCTION :schema.append(
  p_scope TEXT, p_session TEXT, p_now BIGINT, p_revision BIGINT, p_key TEXT, p_titled BOOLEAN, p_sync TEXT,
  p_lock_ms TEXT, p_kinds TEXT[], p_bodies BYTEA[], p_raws BYTEA[], p_salts BYTEA[], p_contents BYTEA[],
  p_adds BIGINT[], p_calls TEXT[]
) RETURNS SETOF :schema.session LANGUAGE plpgsql AS $$
DECLARE
  s :schema.session%ROWTYPE;
  v_count CONSTANT INT := cardinality(p_kinds);
  v_first BIGINT;
  v_key BIGINT;
  v_position BIGINT;
  v_messages BIGINT;
  v_check BIGINT;
  v_chain_check BIGINT;
  v_at INT;
BEGIN
  PERFORM set_config('takeback.scope', 's' || p_scope, true), set_config('lock_timeout', p_lock_ms, true);
  IF p_sync IS NOT NULL THEN
    PERFORM set_config('synchronous_commit', p_sync, true);
  END IF;
  SELECT * INTO s FROM :schema.session WHERE scope = p_scope AND id = p_session FOR NO KEY UPDATE;
  IF NOT FOUND OR s.hidden <> 0 OR s.status NOT IN ('active', 'interrupted') OR s.attached <> 1 OR (p_titled AND s.title IS NULL)
     OR p_revision <> s.revision OR s.head_seq + v_count > 4294967295
     OR s.head_chk <> :schema.head_check(s) THEN
    RETURN;
  END IF;
  IF p_key IS NOT NULL AND (s.head_fork > 0 OR EXISTS (
      SELECT 1 FROM :schema.idempotency WHERE scope = p_scope AND session = s.sid AND ikey = p_key)) THEN
    RETURN;
  END IF;
  v_first := s.head_seq + 1;
  v_messages := s.messages;
  FOR i IN 1 .. v_count LOOP
    v_at := 12 * (i - 1);
    s.head_seq := s.head_seq + 1;
    v_key := s.head_branch << 32 | s.head_seq;
    s.messages := s.messages + p_adds[v_at + 1];
    s.turns := s.turns + p_adds[v_at + 2];
    s.tool_calls := s.tool_calls + p_adds[v_at + 3];
    s.tool_failures := s.tool_failures + p_adds[v_at + 4];
    s.input_tokens := s.input_tokens + p_adds[v_at + 5];
    s.output_tokens := s.output_tokens + p_adds[v_at + 6];
    s.cache_read_tokens := s.cache_read_tokens + p_adds[v_at + 7];
    s.cache_write_tokens := s.cache_write_tokens + p_adds[v_at + 8];
    s.reasoning_tokens := s.reasoning_tokens + p_adds[v_at + 9];
    s.cost_nano := s.cost_nano + p_adds[v_at + 10];
    s.active_ms := s.active_ms + p_adds[v_at + 11];
    IF p_adds[v_at + 12] <> 0 THEN
      s.work_seq := s.head_seq;
    END IF;
    s.head_hash := sha256(E'takeback entry 1\n'::bytea || s.head_hash
      || int2send(octet_length(s.head_uid)::int2) || convert_to(s.head_uid, 'UTF8') || int8send(s.head_seq)
      || int2send(octet_length(p_kinds[i])::int2) || convert_to(p_kinds[i], 'UTF8') || int8send(p_now)
      || '\x000c'::bytea || int8send(s.messages) || int8send(s.turns) || int8send(s.tool_calls)
      || int8send(s.tool_failures) || int8send(s.input_tokens) || int8send(s.output_tokens)
      || int8send(s.cache_read_tokens) || int8send(s.cache_write_tokens) || int8send(s.reasoning_tokens)
      || int8send(s.cost_nano) || int8send(s.active_ms) || int8send(s.work_seq) || p_contents[i]);
    v_check := crc32('\x98'::bytea || :schema.packed(v_key) || :schema.packed(p_kinds[i])
      || :schema.packed(p_now, s.turns) || '\xc0'::bytea || :schema.packed(p_bodies[i]) || :schema.packed(p_raws[i])
      || '\xc0'::bytea);
    v_chain_check := crc32('\xdc0011'::bytea || :schema.packed(v_key, s.turns) || :schema.packed(p_scope)
      || :schema.packed(s.messages, s.tool_calls, s.tool_failures, s.input_tokens, s.output_tokens,
        s.cache_read_tokens, s.cache_write_tokens, s.reasoning_tokens, s.cost_nano, s.active_ms, s.work_seq)
      || '\xc410'::bytea || p_salts[i] || '\xc0c420'::bytea || s.head_hash);
    INSERT INTO :schema.entry VALUES (
      v_key, p_kinds[i], p_now, s.turns, NULL, p_bodies[i], p_raws[i], NULL, v_check, p_scope, s.messages, s.tool_calls, s.tool_failures, s.input_tokens, s.output_tokens, s.cache_read_tokens,
      s.cache_write_tokens, s.reasoning_tokens, s.cost_nano, s.active_ms, s.work_seq, p_salts[i], NULL, s.head_hash,
      v_chain_check);
  END LOOP;
  FOR i IN 0 .. cardinality(p_calls) / 3 - 1 LOOP
    v_key := s.head_branch << 32 | (v_first + p_calls[3 * i + 1]::bigint);
    v_check := crc32('\x94'::bytea || :schema.packed(p_scope) || :schema.packed(v_key)
      || :schema.packed(p_calls[3 * i + 2]) || :schema.packed(p_calls[3 * i + 3]));
    INSERT INTO :schema.call VALUES (p_scope, v_key, p_calls[3 * i + 2], p_calls[3 * i + 3], v_check);
  END LOOP;
  v_position := nextval(':schema.feed_number');
  v_check := crc32('\x97'::bytea || :schema.packed(v_position) || :schema.packed(p_scope)
    || '\xa7656e7472696573'::bytea || :schema.packed(s.sid, s.head_branch, v_first, s.head_seq));
  INSERT INTO :schema.feed (pos, scope, kind, session, branch, first_seq, last_seq, chk, epoch, xid) VALUES (
    v_position, p_scope, 'entries', s.sid, s.head_branch, v_first, s.head_seq, v_check,
    (SELECT max(epoch) FROM :schema.epoch), :schema.not_before(s.updated));
  IF p_key IS NOT NULL THEN
    v_check := crc32('\x97'::bytea || :schema.packed(p_scope) || :schema.packed(s.sid) || :schema.packed(p_key)
      || :schema.packed(s.head_branch, v_first, s.head_seq, 0));
    INSERT INTO :schema.idempotency VALUES (
      p_scope, s.sid, p_key, s.head_branch, v_first, s.head_seq, 0, v_check);
  END IF;
  s.revision := s.revision + 1;
  s.updated := v_position;
  s.updated_ms := p_now;
  IF s.messages > v_messages THEN
    s.message_ms := p_now;
  END IF;
  IF EXISTS (SELECT 1 FROM :schema.session WHERE scope = p_scope AND hidden = 0 AND rank > s.rank) THEN
    s.rank := v_position;  -- the newest one keeps its place, and the index over places is not written
  END IF;
  s.head_chk := :schema.head_check(s);
  UPDATE :schema.session SET head_seq = s.head_seq, head_hash = s.head_hash, messages = s.messages, turns = s.turns,
    tool_calls = s.tool_calls, tool_failures = s.tool_failures, input_tokens = s.input_tokens,
    output_tokens = s.output_tokens, cache_read_tokens = s.cache_read_tokens,
    cache_write_tokens = s.cache_write_tokens, reasoning_tokens = s.reasoning_tokens, cost_nano = s.cost_nano,
    active_ms = s.active_ms, work_seq = s.work_seq, revision = s.revision, updated = s.updated,
    updated_ms = s.updated_ms, message_ms = s.message_ms, rank = s.rank, head_chk = s.head_chk WHERE sid = s.sid;
  RETURN NEXT s;
END $$;

-- The same for one entry of a session whose row the caller has seen: everything but the position in the feed was computed
-- by the caller, and counts only if nobody changed the session since; else nothing is done and NULL is given. What
-- depends on the position comes as the bytes around it. The position is given, negative if the rank stayed as it was.
-- Numbers come as one array, since every argument is set up anew in every call, and so is every expression.
CREATE OR REPLACE FUNCTION :schema.append_known(
  p_sync TEXT, p_lock_ms TEXT, p_scope TEXT, p_ikey TEXT, p_kind TEXT, p_body BYTEA, p_raw BYTEA, p_salt BYTEA,
  p_hash BYTEA, p_before BYTEA, p_between BYTEA, p_packed_rank BYTEA, p_feed BYTEA, p BIGINT[], p_marks TEXT[]
) RETURNS BIGINT LANGUAGE plpgsql AS $$
-- p: 1 sid, 2 updated, 3 head_chk, 4 epoch or null, 5 check of the key, 6 rank, 7 revision, 8 time of the last message or
-- null, 9 branch, 10 seq, 11 key, 12 time, 13 chk, 14 messages, 15 turns, ... 25 work_seq, 26 chain_chk
-- p_marks: of each tool call that it touches what, id and chk; null if there are none
DECLARE
  v_position BIGINT;
  v_packed BYTEA;
  v_rank BIGINT := p[6];
  v_check BIGINT;
  v_set TEXT := set_config('takeback.scope', 's' || p_scope, true);
BEGIN
  IF p_lock_ms IS NOT NULL THEN
    v_set := set_config('lock_timeout', p_lock_ms, true);
  END IF;
  IF p_sync IS NOT NULL THEN
    v_set := set_config('synchronous_commit', p_sync, true);
  END IF;
  IF p_ikey IS NOT NULL THEN
    IF EXISTS (SELECT 1 FROM :schema.idempotency WHERE scope = p_scope AND session = p[1] AND ikey = p_ikey) THEN
      RETURN NULL;
    END IF;
  END IF;
  v_position := nextval(':schema.feed_number');
  IF v_position BETWEEN 65536 AND 4294967295 THEN
    v_packed := '\xce'::bytea || substr(int8send(v_position), 5);
  ELSE
    v_packed := :schema.packed(v_position);
  END IF;
  -- Whoever changes last ranks highest. The newest session keeps its rank, so that the index over ranks is not written;
  -- it is still the newest if no position was given out since its own.
  IF v_position <> p[2] + 1 THEN
    IF EXISTS (SELECT 1 FROM :schema.session WHERE scope = p_scope AND hidden = 0 AND rank > v_rank) THEN
      v_rank := v_position;
      v_check := crc32(p_before || v_packed || p_between || v_packed);
    END IF;
  END IF;
  IF v_check IS NULL THEN
    v_check := crc32(p_before || v_packed || p_between || p_packed_rank);
  END IF;
  UPDATE :schema.session SET head_seq = p[10], head_hash = p_hash, messages = p[14], turns = p[15], tool_calls = p[16],
    tool_failures = p[17], input_tokens = p[18], output_tokens = p[19], cache_read_tokens = p[20],
    cache_write_tokens = p[21], reasoning_tokens = p[22], cost_nano = p[23], active_ms = p[24], work_seq = p[25],
    revision = p[7], updated = v_position, updated_ms = p[12], message_ms = p[8], rank = v_rank, head_chk = v_check
    WHERE sid = p[1] AND updated = p[2] AND head_chk = p[3];
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  INSERT INTO :schema.entry VALUES (p[11], p_kind, p[12], p[15], NULL, p_body, p_raw, NULL, p[13], p_scope, p[14],
    p[16], p[17], p[18], p[19], p[20], p[21], p[22], p[23], p[24], p[25], p_salt, NULL, p_hash, p[26]);
  IF p_marks IS NOT NULL THEN
    FOR i IN 0 .. cardinality(p_marks) / 3 - 1 LOOP
      INSERT INTO :schema.call VALUES (
        p_scope, p[11], p_marks[3 * i + 1], p_marks[3 * i + 2], p_marks[3 * i + 3]::bigint);
    END LOOP;
  END IF;
  v_check := crc32('\x97'::bytea || v_packed || p_feed);
  IF p[4] IS NULL THEN
    p[4] := :schema.current_epoch();
  END IF;
  INSERT INTO :schema.feed (pos, scope, kind, session, branch, first_seq, last_seq, chk, epoch) VALUES (
    v_position, p_scope, 'entries', p[1], p[9], p[10], p[10], v_check, p[4]);
  IF p_ikey IS NOT NULL THEN
    INSERT INTO :schema.idempotency VALUES (p_scope, p[1], p_ikey, p[9], p[10], p[10], 0, p[5]);
  END IF;
  RETURN CASE WHEN v_rank = p[6] THEN -v_position ELSE v_position END;
END $$;
