/* The commit, as the server executes it: one function that takes a batch of units as parallel
 * arrays.
 *
 * A batch is a list of lines (postgres_encode.c writes them): the beginning of a unit, its
 * conditions, the rules its operations must find kept, and the operations. Conditions and rules
 * come first, so a unit that is refused has written nothing and needs no subtransaction, and its
 * neighbours do not notice.
 *
 * Rows are locked before the first line is looked at, in one order for everybody: sessions, lanes
 * (advisory locks, because a lane is no row), runs by ID, values by space and key. Then the clock
 * is read.
 *
 * All runs the batch names are read with their locks into arrays (a_…), by their place in p_locks;
 * one at a time is in variables (cur_…). What changed is written at the end, new rows, changed rows
 * and facts with one statement each, so a run is written once a batch. Operations that look through
 * an index (due work, a session's runs) have everything written before, and everything read again
 * after; changes of lanes are written at once, because the order of a lane is asked for often.
 * Facts are counted from their table: a step writes a row of facts and no row of the run.
 *
 * What was absent when it was asked for and is there when it is to be inserted (somebody else was
 * quicker) raises 40001: the client submits the batch again, which finds it. '@' stands for the
 * schema, "@@" for its number.
 *
 * A baseline that is absent and stays so cannot be locked either. Who relies on it (a guard) shares
 * an advisory lock, and who puts it to keep the others out (STET_OP_SETTLE) takes it alone: behind
 * him everybody finds it, and all who did not have committed. In a transaction of somebody else a
 * snapshot may be older than that lock, so there a row is locked as well: if it was touched since,
 * the server refuses.
 */
#include "store/postgres_lines.h"

/* Nobody may execute it, and STET_OP_REQUEUE may ask for it. */
#define FN_IDLE(session, due, terminal, status)                                                    \
    "(" session "=0 AND " due " IS NULL AND NOT " terminal " AND NOT (" status                     \
    " BETWEEN 0 AND 63 AND (p_quiet>>" status ")&1=1))"

#define FN_COLUMNS                                                                                 \
    "id,handler,key,grp,status,terminal,session,epoch,inbox,due,created,ended,priority,attempt,"   \
    "lane,lane_pos,reason,extra,idle"

/* Write the run that is in the variables, alone. */
#define FN_WRITE_ONE                                                                               \
    "IF cur_put>0 THEN "                                                                           \
    " INSERT INTO @runs(" FN_COLUMNS ") VALUES(p_locks[cur],cur_handler,r_key[cur_put],"           \
    "  r_grp[cur_put],cur_status,cur_terminal,cur_session,cur_epoch,cur_inbox,cur_due,"            \
    "  r_created[cur_put],cur_ended,r_priority[cur_put],cur_attempt,cur_lane,cur_pos,"             \
    "  r_reason[cur_reason],r_extra[cur_extra],"                                                   \
    FN_IDLE("cur_session", "cur_due", "cur_terminal", "cur_status") ") ON CONFLICT DO NOTHING;"    \
    " IF NOT FOUND THEN " FN_RACED " END IF;"                                                      \
    "ELSE "                                                                                        \
    " UPDATE @runs SET status=cur_status,terminal=cur_terminal,session=cur_session,"               \
    "  epoch=cur_epoch,inbox=cur_inbox,due=cur_due,ended=cur_ended,attempt=cur_attempt,"           \
    "  lane=cur_lane,lane_pos=cur_pos,idle="                                                       \
    FN_IDLE("cur_session", "cur_due", "cur_terminal", "cur_status") ","                            \
    "  reason=CASE WHEN cur_reason>0 THEN r_reason[cur_reason] ELSE reason END,"                   \
    "  extra=CASE WHEN cur_extra>0 THEN r_extra[cur_extra] ELSE extra END WHERE id=p_locks[cur];"  \
    "END IF; changed := true; cur_put := 0; cur_reason := 0; cur_extra := 0; cur_laned := false;"  \
    "a_state[cur] := 0;\n"

/* Put the variables back. a_state: 1 to be changed, 2 to be inserted. */
#define FN_SAVE                                                                                    \
    "IF cur>0 THEN IF cur_dirty THEN "                                                             \
    " IF cur_laned THEN " FN_WRITE_ONE                                                             \
    " ELSIF cur_put>0 AND a_state[cur]<>2 THEN n_new := n_new+1; w_new[n_new] := cur;"             \
    "  a_state[cur] := 2; "                                                                        \
    " ELSIF cur_put=0 AND a_state[cur]=0 THEN n_changed := n_changed+1; w_changed[n_changed] := "  \
    "cur;"                                                                                         \
    "  a_state[cur] := 1; END IF;"                                                                 \
    " a_exists[cur] := cur_exists; a_handler[cur] := cur_handler; a_status[cur] := cur_status;"    \
    " a_terminal[cur] := cur_terminal; a_session[cur] := cur_session; a_epoch[cur] := cur_epoch;"  \
    " a_inbox[cur] := cur_inbox; a_due[cur] := cur_due; a_ended[cur] := cur_ended;"                \
    " a_attempt[cur] := cur_attempt; a_lane[cur] := cur_lane; a_pos[cur] := cur_pos;"              \
    " a_put[cur] := cur_put; a_reason[cur] := cur_reason; a_extra[cur] := cur_extra;"              \
    " cur_dirty := false; END IF; a_journal[cur] := cur_journal; END IF;\n"

/* The run at place `cur` into the variables. */
#define FN_TAKE                                                                                    \
    "cur_exists := a_exists[cur]; cur_handler := a_handler[cur]; cur_status := a_status[cur];"     \
    "cur_terminal := a_terminal[cur]; cur_session := a_session[cur]; cur_epoch := a_epoch[cur];"   \
    "cur_inbox := a_inbox[cur]; cur_due := a_due[cur]; cur_ended := a_ended[cur];"                 \
    "cur_attempt := a_attempt[cur]; cur_lane := a_lane[cur]; cur_pos := a_pos[cur];"               \
    "cur_journal := a_journal[cur]; cur_put := a_put[cur]; cur_reason := a_reason[cur];"           \
    "cur_extra := a_extra[cur]; cur_dirty := false; cur_laned := false;\n"

/* All runs of the batch, locked in the order of their IDs. Their facts are counted by a statement
 * of its own: one that had to wait for a lock sees the row as it is now, and other tables as they
 * were before. */
#define FN_READ                                                                                    \
    "is_stale := false; cur := 0; n_runs := cardinality(p_locks);"                                 \
    "IF n_runs>0 THEN "                                                                            \
    " SELECT array_agg(z.there),array_agg(z.handler),array_agg(z.status),array_agg(z.terminal),"   \
    "  array_agg(z.session),array_agg(z.epoch),array_agg(z.inbox),array_agg(z.due),"               \
    "  array_agg(z.ended),array_agg(z.attempt),array_agg(z.lane),array_agg(z.lane_pos) INTO "      \
    "  a_exists,a_handler,a_status,a_terminal,a_session,a_epoch,a_inbox,a_due,a_ended,a_attempt,"  \
    "  a_lane,a_pos FROM (SELECT r.id IS NOT NULL AS there,r.handler,r.status,"                    \
    "   coalesce(r.terminal,false) AS terminal,coalesce(r.session,0) AS session,"                  \
    "   coalesce(r.epoch,0) AS epoch,coalesce(r.inbox,0) AS inbox,r.due,r.ended,r.attempt,r.lane," \
    "   r.lane_pos FROM unnest(p_locks) WITH ORDINALITY u(id,ord) LEFT JOIN LATERAL (SELECT q.id," \
    "   q.handler,q.status,q.terminal,q.session,q.epoch,q.inbox,q.due,q.ended,q.attempt,q.lane,"   \
    "   q.lane_pos FROM @runs q WHERE q.id=u.id FOR NO KEY UPDATE) r ON true ORDER BY u.ord) z;"   \
    " SELECT array_agg(z.last) INTO a_journal FROM (SELECT coalesce((SELECT f.rev+f.count-1 FROM " \
    "  @facts f WHERE f.run=u.id ORDER BY f.rev DESC LIMIT 1),0) AS last FROM unnest(p_locks) "    \
    "  WITH ORDINALITY u(id,ord) ORDER BY u.ord) z;"                                               \
    " a_state := array_fill(0,ARRAY[n_runs]); a_put := a_state; a_reason := a_state;"              \
    " a_extra := a_state; "                                                                        \
    "END IF;\n"

/* Everything that waits. */
#define FN_WRITE_FACTS                                                                             \
    "IF n_facts>0 THEN INSERT INTO @facts(run,rev,count,data) "                                    \
    " SELECT * FROM unnest(w_run,w_rev,w_count,w_data); w_run := '{}'; w_rev := '{}';"             \
    " w_count := '{}'; w_data := '{}'; n_facts := 0; changed := true; END IF;\n"
#define FN_WRITE                                                                                   \
    FN_SAVE FN_WRITE_FACTS                                                                         \
    "IF n_new>0 THEN INSERT INTO @runs(" FN_COLUMNS ") SELECT p_locks[i],a_handler[i],"            \
    "  r_key[a_put[i]],r_grp[a_put[i]],a_status[i],a_terminal[i],a_session[i],a_epoch[i],"         \
    "  a_inbox[i],a_due[i],r_created[a_put[i]],a_ended[i],r_priority[a_put[i]],a_attempt[i],"      \
    "  a_lane[i],a_pos[i],r_reason[a_reason[i]],r_extra[a_extra[i]],"                              \
    FN_IDLE("a_session[i]", "a_due[i]", "a_terminal[i]", "a_status[i]")                            \
    "  FROM unnest(w_new) i WHERE a_state[i]=2 ON CONFLICT DO NOTHING;"                            \
    " GET DIAGNOSTICS number = ROW_COUNT;"                                                         \
    " IF number<>(SELECT count(*) FROM unnest(w_new) i WHERE a_state[i]=2) THEN " FN_RACED         \
    " END IF; changed := true; is_stale := true; END IF;"                                          \
    "IF n_changed>0 THEN UPDATE @runs r SET status=a_status[i],terminal=a_terminal[i],"            \
    "  session=a_session[i],epoch=a_epoch[i],inbox=a_inbox[i],due=a_due[i],ended=a_ended[i],"      \
    "  attempt=a_attempt[i],idle="                                                                 \
    FN_IDLE("a_session[i]", "a_due[i]", "a_terminal[i]", "a_status[i]") ","                        \
    "  reason=CASE WHEN a_reason[i]>0 THEN r_reason[a_reason[i]] ELSE r.reason END,"               \
    "  extra=CASE WHEN a_extra[i]>0 THEN r_extra[a_extra[i]] ELSE r.extra END"                     \
    "  FROM unnest(w_changed) i WHERE r.id=p_locks[i] AND a_state[i]=1;"                           \
    " changed := true; is_stale := true; END IF;"                                                  \
    "w_new := '{}'; w_changed := '{}'; n_new := 0; n_changed := 0; cur := 0;\n"

/* Session `ask` as of this batch. */
#define FN_SESSION                                                                                 \
    "IF ask IS DISTINCT FROM s_id THEN "                                                           \
    " SELECT lease_until,token=p_token INTO s_until,s_own FROM @sessions "                         \
    "  WHERE session=ask AND NOT closed;"                                                          \
    " IF NOT FOUND THEN s_until := 0; s_own := false; END IF; s_id := ask;"                        \
    "END IF;\n"

#define FN_CLAIMER                                                                                 \
    "IF who <> c_is THEN c_is := who; c_names := c_handler[c_from[who]:c_to[who]]; END IF;\n"

/* The lane's lock: one of 256, so that a batch of many lanes needs few. */
#define FN_BUCKET(lane) "('x'||left(md5(" lane "),2))::bit(8)::int"

#define FN_REMEMBER                                                                                \
    "IF res<>0 OR claim_inbox<>0 OR next_due<>" FN_NEVER " THEN "                                  \
    " n_out := n_out+1; x_oseq[n_out] := u_seq; x_oresult[n_out] := res; x_ocond[n_out] := cond;"  \
    " x_oinbox[n_out] := claim_inbox; x_odue[n_out] := next_due;"                                  \
    "END IF; results[unit] := res;\n"

#define FN_GRANTED(id, epoch, inbox)                                                               \
    "n_grant := n_grant+1; x_gseq[n_grant] := u_seq; x_grun[n_grant] := " id                       \
    "; x_gepoch[n_grant] := " epoch "; x_ginbox[n_grant] := " inbox "; must_write := true;\n"

const char *const stet__pg_function[] = {
    "CREATE OR REPLACE FUNCTION @commit(p_committer uuid, p_token bytea, p_advance bigint,"
    " p_sticky bigint, p_quiet bigint, p_turn int, p_first bigint, p_sessions bigint[], p_reaps "
    "bigint[],"
    " p_lanes bytea[], p_leaves uuid[], p_locks uuid[], p_spaces bytea[], p_keys bytea[],"
    " p_k int[], p_i int[], p_f int[], p_x int[], p_y int[], p_n bigint[], p_s bigint[], p_e "
    "bigint[],"
    " p_t bigint[], p_run uuid[], p_a bytea[], p_b bytea[], p_d bytea[],"
    " r_handler bytea[], r_key bytea[], r_grp bytea[], r_reason bytea[], r_extra bytea[],"
    " r_status int[], r_terminal boolean[], r_epoch bigint[], r_inbox bigint[], r_due bigint[],"
    " r_created bigint[], r_ended bigint[], r_priority int[], r_attempt int[],"
    " c_session bigint[], c_status int[], c_from int[], c_to int[], c_handler bytea[],"
    " OUT x_now bigint, OUT x_last bigint, OUT x_news boolean, OUT x_turn int,"
    " OUT x_oseq bigint[], OUT x_oresult int[], OUT x_ocond int[], OUT x_oinbox bigint[],"
    " OUT x_odue bigint[], OUT x_gseq bigint[], OUT x_grun uuid[], OUT x_gepoch bigint[],"
    " OUT x_ginbox bigint[])\n",
    "LANGUAGE plpgsql SET search_path=pg_catalog SET jit=off SET enable_seqscan=off AS "
    "$function$\n",
    ""
    "DECLARE\n",
    " l record; m record; was_known boolean := false; changed boolean := false;"
    " must_write boolean := false; skipping boolean := false; holds boolean;\n",
    " unit int := 0; n_out int := 0; n_grant int := 0; u_seq bigint := 0; res int := 0; cond int "
    ":= 0;"
    " claim_run uuid; claim_inbox bigint := 0; next_due bigint := " FN_NEVER
    "; results int[] := '{}';"
    " u_first bigint := 0; n_seqs bigint := 0; u_seqs bigint[] := '{}';\n",
    " a_exists boolean[]; a_handler bytea[]; a_status int[]; a_terminal boolean[]; a_session "
    "bigint[];"
    " a_epoch bigint[]; a_inbox bigint[]; a_due bigint[]; a_ended bigint[]; a_attempt int[];"
    " a_lane bytea[]; a_pos bigint[]; a_journal bigint[]; a_state int[]; a_put int[]; a_reason "
    "int[];"
    " a_extra int[]; n_runs int := 0; is_stale boolean := false;"
    " w_new int[] := '{}'; n_new int := 0; w_changed int[] := '{}'; n_changed int := 0;"
    " w_run uuid[] := '{}'; w_rev bigint[] := '{}'; w_count int[] := '{}'; w_data bytea[] := '{}';"
    " n_facts int := 0; cur_laned boolean := false; cur_reason int := 0; cur_extra int := 0;\n",
    " cur int := 0; cur_exists boolean := false; cur_dirty boolean := false; cur_put int := 0;"
    " cur_handler bytea; cur_status int; cur_terminal boolean; cur_session bigint; cur_epoch "
    "bigint;"
    " cur_inbox bigint; cur_due bigint; cur_ended bigint; cur_attempt int; cur_lane bytea;"
    " cur_pos bigint; cur_journal bigint; want uuid;\n",
    " ask bigint; s_id bigint; s_until bigint; s_own boolean;"
    " who int; c_is int := 0; c_names bytea[]; buckets int[]; bucket int; old_lane bytea; m_run "
    "uuid;\n",
    " do_wake boolean; do_grant boolean; hasten boolean; due_only boolean; wake_status int;"
    " v_version bigint; v_run uuid; v_rev bigint; number bigint; g_a bytea; g_b bytea;"
    " share int; found_ids uuid[]; found_ords int[]; n_found int; soon bigint;\n",
    "BEGIN\n",
    " x_oseq := '{}'; x_oresult := '{}'; x_ocond := '{}'; x_oinbox := '{}'; x_odue := '{}';"
    " x_gseq := '{}'; x_grun := '{}'; x_gepoch := '{}'; x_ginbox := '{}';"
    " x_news := false; x_turn := p_turn;\n",
    /* A server may be told to be quick rather than safe; a commit here is one that lasts. */
    " IF current_setting('synchronous_commit')='off' THEN"
    "  PERFORM set_config('synchronous_commit','on',true); END IF;\n",
    /* A snapshot that is older than the locks does not see what they protect. In a transaction of somebody
     * else a unit may come that touches no lane: what it depends on are rows, and those are told when they
     * are locked. */
    " IF (p_committer IS NOT NULL OR cardinality(p_lanes)>0 OR cardinality(p_leaves)>0) AND"
    "  current_setting('transaction_isolation') IN ('repeatable read','serializable') THEN " FN_OLD
    " END IF;\n",
    /* The locks. A session is kept from being reaped while it is granted runs. */
    " IF cardinality(p_sessions)>0 THEN PERFORM 1 FROM @sessions WHERE session=ANY(p_sessions)"
    "  ORDER BY session FOR KEY SHARE; END IF;\n",
    " IF cardinality(p_reaps)>0 THEN PERFORM 1 FROM @sessions WHERE session=ANY(p_reaps)"
    "  ORDER BY session FOR UPDATE; END IF;\n",
    " IF cardinality(p_lanes)>0 OR cardinality(p_leaves)>0 THEN\n",
    "  SELECT array_agg(b ORDER BY b) INTO buckets FROM (SELECT " FN_BUCKET(
        "u") " AS b"
             "   FROM unnest(p_lanes) u UNION SELECT " FN_BUCKET(
                 "r.lane") " FROM @runs r"
                           "   WHERE r.id=ANY(p_leaves) AND r.lane IS NOT NULL) z;\n",
    "  FOREACH bucket IN ARRAY coalesce(buckets,'{}') LOOP"
    "   PERFORM pg_advisory_xact_lock(" PG_LOCK_CLASS ",@@+bucket); END LOOP;\n",
    /* … and who is next when they leave. */
    "  IF cardinality(p_leaves)>0 THEN PERFORM 1 FROM @runs WHERE id=ANY(p_locks||ARRAY(SELECT"
    "   (SELECT n.id FROM @runs n WHERE n.lane=r.lane AND n.lane_pos>r.lane_pos ORDER BY n.lane_pos"
    "   LIMIT 1) FROM @runs r WHERE r.id=ANY(p_leaves) AND r.lane IS NOT NULL)) ORDER BY id"
    "   FOR NO KEY UPDATE; END IF;\n",
    " END IF;\n",
    " " FN_READ " IF cardinality(p_keys)>0 THEN PERFORM 1 FROM unnest(p_spaces,p_keys) u(s,k)"
    "  JOIN @vals v ON v.space=u.s AND v.key=u.k ORDER BY v.space,v.key FOR NO KEY UPDATE OF v;"
    " END IF;\n",
    " x_now := floor(extract(epoch FROM clock_timestamp())*1000)::bigint+p_advance;\n",
    " SELECT c.last_seq,c.first_seq,c.seqs,c.o_seq,c.o_result,c.o_cond,c.o_inbox,c.o_due,c.g_seq,"
    "  c.g_run,c.g_epoch,c.g_inbox INTO m FROM @committers c WHERE c.id=p_committer;\n",
    " was_known := FOUND; x_last := coalesce(m.last_seq,CASE WHEN p_committer IS NULL THEN -1 ELSE "
    "0 END);\n",
    " FOR l IN SELECT * FROM unnest(p_k,p_i,p_f,p_x,p_y,p_n,p_s,p_e,p_t,p_run,p_a,p_b,p_d)"
    "  AS u(k,i,f,x,y,n,s,e,t,run,a,b,d) LOOP\n",
    /* A unit begins; the one before has ended. */
    "IF l.k=0 THEN\n", " IF unit>0 AND NOT skipping THEN " FN_REMEMBER " END IF;\n",
    " unit := unit+1; u_seq := l.n; res := 0; cond := 0; claim_run := NULL; claim_inbox := 0;"
    " next_due := " FN_NEVER "; skipping := false;\n",
    " IF unit=1 THEN u_first := u_seq; END IF; u_seqs[unit] := u_seq;\n",
    " IF u_seq<=x_last THEN skipping := true;\n",
    /* It comes again: the old answer. What is not remembered was another batch's. */
    "  number := array_position(m.o_seq,u_seq);\n",
    "  IF number IS NOT NULL THEN res := m.o_result[number]; cond := m.o_cond[number];"
    "   claim_inbox := m.o_inbox[number]; next_due := m.o_due[number];\n",
    "  ELSIF u_seq<m.first_seq OR (m.seqs IS NOT NULL AND u_seq<>ALL(m.seqs)) THEN"
    "   res := -60; cond := l.x; END IF;\n",
    "  IF m.g_seq<>'{}' THEN FOR i IN 1..cardinality(m.g_seq) LOOP IF m.g_seq[i]=u_seq THEN "
    "   n_grant := n_grant+1; x_gseq[n_grant] := u_seq; x_grun[n_grant] := m.g_run[i];"
    "   x_gepoch[n_grant] := m.g_epoch[i]; x_ginbox[n_grant] := m.g_inbox[i]; END IF; END LOOP; "
    "END IF;\n",
    "  " FN_REMEMBER " END IF; CONTINUE;\n", "END IF;\n", "CONTINUE WHEN skipping;\n",
    "IF l.i<>cur AND l.i>0 THEN\n",
    " IF is_stale THEN " FN_READ " ELSE " FN_SAVE " END IF; cur := l.i; " FN_TAKE "END IF;\n",
    "IF l.k<32 THEN\n",
    /* Conditions, and rules of operations (10 … 16). */
    "CASE l.k\n", "WHEN 1 THEN holds := cur_exists AND cur_session=l.s AND cur_epoch=l.e;\n",
    " IF holds AND l.s<>0 THEN ask := l.s; " FN_SESSION
    " holds := s_until>x_now AND s_own; END IF;\n",
    " IF holds AND claim_run IS NULL THEN claim_run := l.run; claim_inbox := cur_inbox; END IF;\n",
    "WHEN 2 THEN IF l.n=0 THEN holds := NOT cur_exists; ELSIF NOT cur_exists THEN holds := false;"
    " ELSE holds := cur_journal=l.n; END IF;\n",
    "WHEN 3 THEN holds := cur_exists AND cur_inbox=l.n;\n",
    "WHEN 4 THEN ask := l.s; " FN_SESSION " holds := cur_exists AND NOT cur_terminal AND "
    "cur_session=0 AND cur_due IS NULL AND cur_epoch=l.e"
    "  AND cur_inbox=l.n AND s_until>x_now AND s_own;\n",
    "WHEN 10 THEN holds := cur_exists;\n", "WHEN 11 THEN holds := NOT cur_exists;\n",
    "WHEN 12 THEN holds := cur_journal=l.n OR (l.f&16=16 AND cur_journal<l.n);\n", "WHEN 13 THEN holds := NOT cur_terminal;\n",
    "WHEN 14 THEN holds := cur_lane IS NULL OR cur_lane=l.a;\n",
    "WHEN 15 THEN holds := cur_terminal;\n",
    "WHEN 16 THEN SELECT max(i.seq) INTO number FROM @inbox i WHERE i.run=l.run;"
    " holds := cur_session=0 AND cur_journal<>0 AND cur_journal=l.n AND coalesce(number,0)=l.t;\n",
    "WHEN 20 THEN v_version := NULL;"
    /* Every caller's unit asks for the same guard: once a batch. */
    " IF l.f&4=4 AND g_a=l.a AND g_b=l.b THEN NULL;"
    " ELSIF l.f&1=1 THEN"
    "  IF l.f&4=4 THEN PERFORM pg_advisory_xact_lock_shared" FN_GUARD ";"
    "   IF p_committer IS NULL THEN PERFORM 1 FROM @meta WHERE k='format' FOR SHARE; END IF;"
    "  END IF;"
    "  SELECT v.version INTO v_version FROM @base v WHERE v.space=l.a AND v.key=l.b FOR NO KEY "
    "UPDATE;"
    "  IF l.f&4=4 AND v_version IS NULL THEN g_a := l.a; g_b := l.b; END IF;"
    " ELSE"
    "  SELECT v.version INTO v_version FROM @vals v WHERE v.space=l.a AND v.key=l.b FOR NO KEY "
    "UPDATE;"
    " END IF; holds := coalesce(v_version,0)=l.n;\n",
    "WHEN 21 THEN IF l.f&1=1 THEN"
    "  SELECT v.run,v.rev INTO v_run,v_rev FROM @base v WHERE v.space=l.a AND v.key=l.b"
    "   FOR NO KEY UPDATE;"
    " ELSE"
    "  SELECT v.run,v.rev INTO v_run,v_rev FROM @vals v WHERE v.space=l.a AND v.key=l.b"
    "   FOR NO KEY UPDATE;"
    " END IF; holds := FOUND AND v_run IS NOT DISTINCT FROM l.run AND v_rev=l.n;\n",
    "WHEN 22 THEN PERFORM 1 FROM @timers t WHERE t.fire=l.t AND t.run=l.run AND t.completion=l.n"
    "  FOR UPDATE; holds := FOUND;\n",
    "WHEN 23 THEN ask := l.s; " FN_SESSION " holds := s_until<=x_now;\n",
    "WHEN 24 THEN holds := l.x=0 OR results[l.x]=0;\n", "ELSE holds := false;\n", "END CASE;\n",
    "IF holds THEN IF l.k<10 OR l.k>=20 THEN cond := cond+1; END IF; CONTINUE; END IF;\n",
    "res := CASE l.k WHEN 1 THEN -90 WHEN 14 THEN -60 WHEN 25 THEN l.x ELSE -6 END;"
    " claim_inbox := 0; skipping := true; must_write := true;\n" FN_REMEMBER "CONTINUE;\n",
    "END IF;\n", "IF l.k<>54 THEN must_write := true; END IF;\n",
    "do_wake := false; do_grant := false; hasten := false; due_only := false; who := 0;\n",
    /* Operations on one run, which is in the variables. */
    "CASE l.k\n", "WHEN 32 THEN\n", /* put */
    " cur_put := l.y; cur_reason := l.y; cur_extra := l.y; cur_dirty := true; cur_exists := true;"
    " cur_handler := r_handler[l.y]; cur_status := r_status[l.y]; cur_terminal := r_terminal[l.y]; "
    "cur_session := 0; cur_epoch := 0; cur_inbox := 0;"
    " cur_due := r_due[l.y]; cur_ended := r_ended[l.y]; cur_attempt := r_attempt[l.y];"
    " cur_lane := NULL; cur_pos := NULL; cur_journal := 0;\n",
    " who := l.x; do_grant := who>0 AND NOT cur_terminal AND cur_due<=x_now;\n",
    "WHEN 33 THEN\n", /* set */
    " cur_dirty := true;\n",
    " IF l.f&1<>0 THEN cur_status := r_status[l.y]; cur_terminal := r_terminal[l.y];"
    "  cur_ended := r_ended[l.y]; END IF;\n",
    " IF l.f&2<>0 THEN cur_session := 0; END IF;\n",
    " IF l.f&34<>0 AND cur_session=0 THEN cur_due := r_due[l.y]; END IF;\n",
    " IF l.f&4<>0 THEN cur_attempt := r_attempt[l.y]; END IF;\n",
    " IF l.f&8<>0 THEN cur_reason := l.y; END IF;\n",
    " IF l.f&16<>0 THEN cur_extra := l.y; END IF;\n",
    "WHEN 34 THEN do_wake := true; hasten := l.f&2<>0; due_only := l.f&32<>0; wake_status := l.x;"
    " who := l.y;\n",
    "WHEN 35 THEN\n", /* facts; of a run that begins anew */
    " IF l.f&16=16 THEN " FN_WRITE_FACTS
    "  DELETE FROM @facts WHERE run=l.run; DELETE FROM @inbox WHERE run=l.run AND seq<=l.s;"
    "  IF cur_inbox<l.s THEN cur_inbox := l.s; cur_dirty := true; END IF; changed := true; END IF;\n",
    " n_facts := n_facts+1; w_run[n_facts] := l.run; w_rev[n_facts] := l.n; w_count[n_facts] := "
    "l.x;"
    " w_data[n_facts] := l.d; cur_journal := l.n+l.x-1;\n",
    "WHEN 36 THEN\n", /* inbox */
    " IF cur_exists AND NOT cur_terminal THEN\n",
    "  cur_inbox := cur_inbox+1; cur_dirty := true; changed := true;\n",
    "  INSERT INTO @inbox(run,seq,data) VALUES(l.run,cur_inbox,l.d);\n",
    "  IF l.run=claim_run THEN claim_inbox := cur_inbox; END IF;\n", " END IF;\n",
    "WHEN 37 THEN\n", /* lane: enter */
    " IF cur_lane IS NULL THEN\n",
    "  cur_lane := l.a; cur_dirty := true; cur_laned := true; who := l.y; wake_status := l.x; "
    "hasten := l.f&2<>0;\n",
    "  SELECT lane_pos INTO cur_pos FROM @runs WHERE lane=l.a ORDER BY lane_pos DESC LIMIT 1;\n",
    "  IF FOUND THEN cur_pos := cur_pos+1; cur_due := NULL; ELSE cur_pos := 1; do_wake := true; "
    "END IF;\n",
    " END IF;\n", "WHEN 38,39 THEN\n", /* lane: leave; remove the run */
    " IF cur_exists AND cur_lane IS NOT NULL THEN\n",
    "  IF " FN_BUCKET(
        "cur_lane") "<>ALL(coalesce(buckets,'{}')) THEN"
                    "   RAISE EXCEPTION 'stet: raced' USING ERRCODE='40001'; END IF;\n",
    "  old_lane := cur_lane; number := cur_pos; cur_lane := NULL; cur_pos := NULL; cur_dirty := "
    "true;"
    "  cur_laned := true;\n",
    "  " FN_SAVE "  SELECT id,lane_pos INTO want,v_rev FROM @runs WHERE lane=old_lane ORDER BY "
    "lane_pos LIMIT 1;\n",
    "  IF FOUND AND v_rev>number THEN cur := array_position(p_locks,want);\n",
    /* One the batch does not name gets a place behind the others. */
    "   IF cur IS NULL THEN p_locks := p_locks||want; cur := cardinality(p_locks);\n",
    "    SELECT handler,status,terminal,session,epoch,inbox,due,ended,attempt,lane,lane_pos"
    "     INTO "
    "cur_handler,cur_status,cur_terminal,cur_session,cur_epoch,cur_inbox,cur_due,cur_ended,"
    "     cur_attempt,cur_lane,cur_pos FROM @runs WHERE id=want FOR NO KEY UPDATE;\n",
    "    cur_exists := FOUND; cur_journal := NULL; cur_put := 0; cur_reason := 0; cur_extra := 0;"
    "    a_state[cur] := 0; cur_dirty := true; " FN_SAVE "   ELSE " FN_TAKE " END IF;\n",
    "   do_wake := true; wake_status := l.x; who := l.y; END IF;\n", " END IF;\n",
    " IF l.k=39 THEN\n",
    "  " FN_WRITE_FACTS "  IF cur=l.i THEN cur := 0; cur_dirty := false; END IF;\n",
    "  a_exists[l.i] := false; a_terminal[l.i] := false; a_session[l.i] := 0; a_epoch[l.i] := 0;"
    "  a_inbox[l.i] := 0; a_lane[l.i] := NULL; a_journal[l.i] := 0; a_state[l.i] := 0; a_put[l.i] "
    ":= 0;"
    "  a_reason[l.i] := 0; a_extra[l.i] := 0;\n",
    "  DELETE FROM @facts WHERE run=l.run; DELETE FROM @inbox WHERE run=l.run;"
    "  DELETE FROM @timers WHERE run=l.run; DELETE FROM @runs WHERE id=l.run; changed := true;\n",
    " END IF;\n", "WHEN 40 THEN\n", /* write the row anew */
    " IF cur_exists THEN DELETE FROM @runs WHERE id=l.run; END IF;\n",
    " cur_put := l.y; cur_reason := l.y; cur_extra := l.y; cur_dirty := true; cur_laned := true;"
    " cur_handler := r_handler[l.y]; cur_status := r_status[l.y];"
    " cur_terminal := r_terminal[l.y]; cur_session := 0; cur_epoch := "
    "greatest(cur_epoch,r_epoch[l.y]);"
    " cur_inbox := r_inbox[l.y]; cur_due := r_due[l.y]; cur_ended := r_ended[l.y];"
    " cur_attempt := r_attempt[l.y]; IF NOT cur_exists THEN cur_pos := NULL; END IF; cur_exists := "
    "true;\n",
    /* Operations on something else. */
    "WHEN 50 THEN INSERT INTO @timers(fire,run,completion) VALUES(l.t,l.run,l.n)"
    " ON CONFLICT DO NOTHING; changed := changed OR FOUND;\n",
    "WHEN 51 THEN DELETE FROM @timers t WHERE t.fire=l.t AND t.run=l.run AND t.completion=l.n;"
    " changed := changed OR FOUND;\n",
    "WHEN 52 THEN changed := true;\n",
    " IF l.f&8=8 THEN PERFORM pg_advisory_xact_lock" FN_GUARD ";"
    "  UPDATE @meta SET v=v WHERE k='format'; END IF;\n",
    " IF l.f&1=1 THEN g_a := NULL;"
    "  INSERT INTO @base AS v(space,key,version,data,run,rev) VALUES(l.a,l.b,1,l.d,l.run,l.n)"
    "  ON CONFLICT(space,key) DO UPDATE SET "
    "version=v.version+1,data=excluded.data,run=excluded.run,"
    "   rev=excluded.rev RETURNING v.version INTO v_version;"
    " ELSE"
    "  INSERT INTO @vals AS v(space,key,version,data,run,rev) VALUES(l.a,l.b,1,l.d,l.run,l.n)"
    "  ON CONFLICT(space,key) DO UPDATE SET "
    "version=v.version+1,data=excluded.data,run=excluded.run,"
    "   rev=excluded.rev RETURNING v.version INTO v_version;"
    " END IF;\n",
    " IF l.f&2=2 AND v_version<>1 THEN"
    "  " FN_RACED " END IF;\n",
    "WHEN 53 THEN IF l.f&1=1 THEN DELETE FROM @base v WHERE v.space=l.a AND v.key=l.b;"
    " ELSE DELETE FROM @vals v WHERE v.space=l.a AND v.key=l.b; END IF; changed := changed OR "
    "FOUND;\n",
    "WHEN 54 THEN\n", /* claim what is due */
    " ", FN_WRITE, " who := l.y; " FN_CLAIMER " n_found := 0; soon := -" FN_NEVER ";\n",
    " IF cardinality(c_names)>0 THEN\n",
    "  ask := c_session[who]; " FN_SESSION "  IF l.x>0 AND s_until>x_now THEN\n",
    "   share := (l.x+cardinality(c_names)-1)/cardinality(c_names);\n", "   LOOP\n",
    "    SELECT array_agg(z.id ORDER BY z.rank,z.place),array_agg(z.ord ORDER BY z.rank,z.place)"
    "     INTO found_ids,found_ords FROM (SELECT w.id,h.ord::int,"
    "      (h.ord-1-x_turn%cardinality(c_names)+cardinality(c_names))%cardinality(c_names) AS "
    "place,"
    "      row_number() OVER (PARTITION BY h.ord ORDER BY w.due,w.id) AS rank"
    "      FROM unnest(c_names) WITH ORDINALITY h(name,ord), LATERAL (SELECT r.id,r.due FROM @runs "
    "r"
    "       WHERE r.handler=h.name AND r.session=0 AND r.due IS NOT NULL AND NOT r.terminal"
    "       AND r.due<=x_now ORDER BY r.due,r.id LIMIT share FOR NO KEY UPDATE SKIP LOCKED) w) "
    "z;\n",
    "    n_found := coalesce(cardinality(found_ids),0);\n",
    /* A fair share of each first; only if some have less, all that the others have. */
    "    EXIT WHEN n_found>=l.x OR share>=l.x; share := l.x;\n", "   END LOOP;\n",
    "   n_found := least(n_found,l.x);\n", "   IF n_found>0 THEN\n",
    "    PERFORM 1 FROM @sessions WHERE session=ask AND NOT closed AND lease_until>x_now"
    "     FOR KEY SHARE;\n",
    "    IF NOT FOUND THEN n_found := 0; END IF;\n", "   END IF;\n", "   IF n_found>0 THEN\n",
    "    x_turn := found_ords[n_found]%cardinality(c_names);\n",
    "    FOR m_run,number,v_rev IN WITH w AS (UPDATE @runs r SET session=ask,epoch=r.epoch+1,"
    "      status=CASE WHEN " FN_STICKY(
        "r.status") " THEN r.status ELSE c_status[who] END"
                    "      WHERE r.id=ANY(found_ids[1:n_found]) RETURNING r.id,r.epoch,r.inbox)"
                    "     SELECT w.id,w.epoch,w.inbox FROM w JOIN (SELECT f.id,min(f.ord) AS ord "
                    "FROM"
                    "      unnest(found_ids[1:n_found]) WITH ORDINALITY f(id,ord) GROUP BY f.id) o "
                    "ON o.id=w.id"
                    "      ORDER BY o.ord LOOP\n",
    "     " FN_GRANTED("m_run", "number", "v_rev") "    END LOOP; is_stale := true;\n",
    "   END IF;\n",
    /* What is due and was not found is being claimed by somebody else. */
    "   IF n_found<l.x THEN soon := x_now+1; END IF;\n", "  END IF;\n",
    "  SELECT min(d.due),min(d.due) FILTER (WHERE d.due>=soon) INTO number,v_rev FROM "
    "unnest(c_names) h,"
    "   LATERAL ((SELECT r.due FROM @runs r WHERE r.handler=h AND r.session=0 AND r.due IS NOT NULL"
    "    AND NOT r.terminal ORDER BY r.due LIMIT 1) UNION ALL"
    "   (SELECT r.due FROM @runs r WHERE r.handler=h AND r.session=0 AND r.due IS NOT NULL"
    "    AND NOT r.terminal AND r.due>=soon ORDER BY r.due LIMIT 1)) d;\n",
    "  next_due := coalesce(v_rev," FN_NEVER ");\n",
    "  IF soon>=0 AND number<=x_now THEN next_due := least(next_due,x_now+20); END IF;\n",
    " END IF; who := 0;\n", "WHEN 55 THEN\n", /* reap */
    " ", FN_WRITE, " is_stale := true;\n", " IF l.s<>0 THEN\n",
    "  PERFORM 1 FROM @runs WHERE session=l.s ORDER BY id FOR NO KEY UPDATE;\n",
    "  UPDATE @runs r SET session=0,idle=false,due=CASE WHEN r.terminal THEN NULL ELSE x_now END,"
    "   status=CASE WHEN r.terminal OR " FN_STICKY(
        "r.status") " THEN r.status ELSE l.x END"
                    "   WHERE r.session=l.s; changed := changed OR FOUND;\n",
    "  DELETE FROM @sessions WHERE session=l.s; changed := changed OR FOUND; s_id := NULL;\n",
    " END IF;\n", "WHEN 56 THEN\n", /* requeue */
    " ", FN_WRITE,
    " is_stale := true; who := l.y; " FN_CLAIMER
    " UPDATE @runs r SET due=x_now,idle=false,status=CASE WHEN " FN_STICKY(
        "r.status") "  THEN r.status ELSE l.n::int END WHERE r.id IN (SELECT q.id FROM @runs q "
                    "WHERE"
                    "  q.handler=ANY(c_names) AND q.status=l.x AND q.idle"
                    "  ORDER BY q.id FOR NO KEY UPDATE); changed := changed OR FOUND; who := 0;\n",
    "WHEN 57 THEN\n", /* bury */
    " UPDATE @sessions SET closed=true WHERE session=l.s AND NOT closed;"
    " changed := changed OR FOUND; s_id := NULL;\n",
    "ELSE RAISE EXCEPTION 'stet: unknown line %',l.k;\n", "END CASE;\n",
    /* What several operations end with, and the end of the batch. */
    "IF do_wake AND cur_exists AND cur_session=0 AND NOT cur_terminal"
    "  AND ((due_only AND cur_due<=x_now) OR (NOT due_only AND (cur_due IS NULL OR (hasten AND "
    "  cur_due>x_now)))) THEN\n",
    " do_wake := NOT due_only; do_grant := cur_lane IS NULL OR due_only;"
    " IF NOT do_grant THEN PERFORM 1 FROM @runs WHERE lane=cur_lane"
    "  AND lane_pos<cur_pos LIMIT 1; do_grant := NOT FOUND; END IF;\n",
    "ELSE do_wake := false; END IF;\n", "IF do_grant THEN holds := false;\n",
    " IF who>0 AND c_session[who]<>0 THEN " FN_CLAIMER
    "  IF cur_handler=ANY(c_names) THEN ask := c_session[who]; " FN_SESSION
    "   holds := s_until>x_now; END IF;\n",
    " END IF;\n",
    " IF holds THEN cur_session := ask; cur_epoch := cur_epoch+1; cur_dirty := true;"
    "  IF NOT " FN_STICKY("cur_status") " THEN cur_status := c_status[who]; END IF;\n",
    "  " FN_GRANTED("p_locks[cur]", "cur_epoch",
                    "cur_inbox") " ELSIF do_wake THEN cur_due := x_now; cur_dirty := true;"
                                 "  IF NOT " FN_STICKY(
                                     "cur_status") " THEN cur_status := wake_status; END IF;\n",
    " END IF;\n", "END IF;\n", "END LOOP;\n",
    "IF unit>0 AND NOT skipping THEN " FN_REMEMBER " END IF;\n", FN_WRITE, "x_news := changed;\n",
    /* An idle look for work is not remembered: it would cost a flush. */
    "IF must_write AND u_seq>x_last AND p_committer IS NOT NULL THEN\n",
    " IF u_seq-u_first+1=unit THEN u_seqs := NULL; END IF;\n", " IF NOT was_known THEN\n",
    "  INSERT INTO @committers "
    "VALUES(p_committer,u_seq,u_first,x_now,u_seqs,x_oseq,x_oresult,x_ocond,"
    "   x_oinbox,x_odue,x_gseq,x_grun,x_gepoch,x_ginbox) ON CONFLICT DO NOTHING;\n",
    " ELSIF p_first<u_first AND x_last<u_first AND x_last>=p_first THEN\n",
    /* A batch in parts: what is remembered of the parts before stays. */
    "  UPDATE @committers c SET last_seq=u_seq,at=x_now,"
    "   seqs=coalesce(c.seqs,ARRAY(SELECT generate_series(c.first_seq,c.last_seq)))||"
    "    coalesce(u_seqs,ARRAY(SELECT generate_series(u_first,u_seq))),"
    "   o_seq=c.o_seq||x_oseq,o_result=c.o_result||x_oresult,o_cond=c.o_cond||x_ocond,"
    "   o_inbox=c.o_inbox||x_oinbox,o_due=c.o_due||x_odue,g_seq=c.g_seq||x_gseq,"
    "   g_run=c.g_run||x_grun,g_epoch=c.g_epoch||x_gepoch,g_inbox=c.g_inbox||x_ginbox"
    "   WHERE c.id=p_committer AND c.last_seq=x_last;\n",
    " ELSE\n",
    "  UPDATE @committers c SET last_seq=u_seq,first_seq=u_first,at=x_now,seqs=u_seqs,o_seq=x_oseq,"
    "   o_result=x_oresult,o_cond=x_ocond,o_inbox=x_oinbox,o_due=x_odue,g_seq=x_gseq,g_run=x_grun,"
    "   g_epoch=x_gepoch,g_inbox=x_ginbox WHERE c.id=p_committer AND c.last_seq=x_last;\n",
    " END IF;\n",
    /* The last try of this batch, given up by the client, was applied meanwhile. */
    " IF NOT FOUND THEN RAISE EXCEPTION 'stet: raced' USING ERRCODE='40001'; END IF;\n",
    "END IF;\n", "END $function$;", NULL
};
