/* Batches that are frequent and simple, as the server executes them: the function of
 * postgres_function.c costs a unit that comes alone a few hundred expressions, most of which have
 * to be made ready for the transaction before they are evaluated once.
 *
 *   steps   units that record facts of one run each, under its claim, and perhaps set it aside or
 *           end it; with values and timers; and perhaps one look for due work among them
 *   wake    one unit: an entry for the inbox of a run, which is woken; perhaps a value that is
 *           replaced
 *   claim   one look for due work
 *   one     the same at one run that is parked here
 *
 * Each does what the other function would do, or says that it did nothing (x_now is NULL), or
 * raises an error when it has written something already. Then the batch goes to that function,
 * which knows the answer: here a unit is never refused. Rows are locked in the same order.
 *
 * The settings of postgres_quick.c hold here, so none is made; all names are qualified. '@' stands
 * for the schema, "@@" for its number.
 */
#include "store/postgres_lines.h"

#define QUICK_NOW(clock) "floor(extract(epoch FROM " clock ")*1000)::bigint+p_advance"

/* The memory of outcomes. One that is not older than this batch has it already. An UPDATE costs
 * less than an INSERT that finds the row there. */
#define QUICK_REMEMBER(and, last, first, seqs, o_seq, o_result, o_cond, o_inbox, o_due, g_seq,     \
                       g_run, g_epoch, g_inbox)                                                    \
    " UPDATE @committers c SET last_seq=" last ",first_seq=" first ",at=x_now,seqs=" seqs          \
    ",o_seq=" o_seq ",o_result=" o_result ",o_cond=" o_cond ",o_inbox=" o_inbox ",o_due=" o_due    \
    ",g_seq=" g_seq ",g_run=" g_run ",g_epoch=" g_epoch ",g_inbox=" g_inbox                        \
    "  WHERE c.id=p_committer AND c.last_seq<" first and ";\n"                                     \
    " IF NOT FOUND THEN INSERT INTO @committers SELECT p_committer," last "," first ",x_now,"      \
    seqs "," o_seq "," o_result "," o_cond "," o_inbox "," o_due "," g_seq "," g_run "," g_epoch   \
    "," g_inbox " WHERE true" and " ON CONFLICT DO NOTHING;\n"                                     \
    " IF NOT FOUND THEN " FN_RACED " END IF; END IF;\n"
#define QUICK_REMEMBERS(...) QUICK_REMEMBER(__VA_ARGS__)
#define QUICK_NO_GRANTS "'{}'", "'{}'", "'{}'", "'{}'"

/* A fair share of each handler first; only if some have less, all that the others have: what is found
 * and not granted is out of everybody's sight until the commit. Where one handler had all the work
 * the last time (p_alone), all at once. The session is kept from being reaped while it is granted
 * runs. Mostly there is one run or none, or one handler, which needs no order. `none`: what to do if
 * the session is dead. */
#define QUICK_DUE "r.session=0 AND r.due IS NOT NULL AND NOT r.terminal"
#define QUICK_GRANT                                                                                \
    "UPDATE @runs r SET session=p_session,epoch=r.epoch+1,"                                        \
    " status=CASE WHEN " FN_STICKY("r.status") " THEN r.status ELSE p_status END"                  \
    " FROM (SELECT q.session FROM @sessions q WHERE q.session=p_session AND NOT q.closed"          \
    "  AND q.lease_until>x_now FOR KEY SHARE) s WHERE s.session=p_session"
#define QUICK_NEXT(more)                                                                           \
    " SELECT min(d.due) INTO x_due FROM unnest(p_names) h(name), LATERAL (SELECT r.due FROM @runs" \
    " r WHERE r.handler=h.name AND " QUICK_DUE more " ORDER BY r.due LIMIT 1) d;\n"
#define QUICK_LOOK_VARIABLES                                                                       \
    " n_names int; share int; n_found int; ids uuid[]; dues bigint[]; ords int[];"
/* What whoever gets it would read next, if it is small: all facts of a run nobody had before. They are
 * one row, as the start wrote them; if there are more, the last one is not the first. The run is
 * locked since the statement before this one, and nobody writes facts without that lock. */
#define QUICK_FACTS                                                                                \
    "CASE WHEN r.epoch=1 AND r.inbox=0 THEN (SELECT f.data FROM (SELECT j.rev,j.data FROM @facts"  \
    " j WHERE j.run=r.id ORDER BY j.rev DESC LIMIT 1) f WHERE f.rev=1 AND"                         \
    " length(f.data)<=p_small) END"
#define QUICK_LOOK(most, g_run, g_epoch, g_inbox, g_facts, none)                                   \
    " n_names := cardinality(p_names);"                                                            \
    " share := CASE WHEN p_alone THEN " most " ELSE (" most "+n_names-1)/n_names END;\n"           \
    " LOOP\n"                                                                                      \
    "  SELECT count(*),array_agg(w.id),array_agg(w.due),array_agg(h.ord::int)"                     \
    "   INTO n_found,ids,dues,ords FROM unnest(p_names) WITH ORDINALITY h(name,ord),"              \
    "   LATERAL (SELECT r.id,r.due FROM @runs r WHERE r.handler=h.name AND " QUICK_DUE             \
    "    AND r.due<=x_now ORDER BY r.due,r.id LIMIT share FOR NO KEY UPDATE SKIP LOCKED) w;\n"     \
    "  EXIT WHEN n_found>=" most " OR share>=" most " OR n_found<share; share := " most ";\n"      \
    " END LOOP;\n"                                                                                 \
    " IF n_found>0 THEN\n"                                                                         \
    "  x_alone := ords[1]=ords[n_found];\n"                                                        \
    "  IF n_found=1 THEN " QUICK_GRANT " AND r.id=ids[1] RETURNING ARRAY[r.id],ARRAY[r.epoch],"    \
    "    ARRAY[r.inbox],ARRAY[" QUICK_FACTS "] INTO " g_run "," g_epoch "," g_inbox "," g_facts    \
    "    ;\n"                                                                                      \
    "  ELSE\n"                                                                                     \
    "   IF NOT x_alone THEN\n"                                                                     \
    "    SELECT array_agg(z.id),array_agg(z.ord) INTO ids,ords FROM (SELECT y.id,y.ord FROM"       \
    "     (SELECT u.id,u.ord,(u.ord-1-p_turn%n_names+n_names)%n_names AS place,"                   \
    "     row_number() OVER (PARTITION BY u.ord ORDER BY u.due,u.id) AS rank FROM"                 \
    "     unnest(ids,dues,ords) u(id,due,ord)) y ORDER BY y.rank,y.place LIMIT " most ") z;\n"     \
    "    n_found := cardinality(ids); END IF;\n"                                                   \
    "   WITH w AS (" QUICK_GRANT " AND r.id=ANY(ids) RETURNING r.id,r.epoch,r.inbox,"              \
    "    " QUICK_FACTS " AS facts) SELECT array_agg(o.id),array_agg(o.epoch),array_agg(o.inbox),"  \
    "    array_agg(o.facts) INTO " g_run "," g_epoch "," g_inbox "," g_facts                       \
    "    FROM (SELECT * FROM w ORDER BY array_position(ids,w.id)) o;\n"                            \
    "  END IF;\n"                                                                                  \
    "  IF " g_run " IS NULL THEN " none " END IF;\n"                                               \
    "  IF cardinality(" g_run ")<>n_found THEN " FN_RACED " END IF;\n"                             \
    "  x_turn := ords[n_found]%n_names;\n"                                                         \
    " END IF;\n"                                                                                   \
    /* Mostly there is more where the first came from; then nobody else is asked. */               \
    " IF n_found>=" most " THEN SELECT r.due INTO x_due FROM @runs r WHERE"                        \
    "  r.handler=p_names[ords[1]] AND " QUICK_DUE " AND r.due<=x_now ORDER BY r.due LIMIT 1;"      \
    "  END IF;\n"                                                                                  \
    " IF x_due IS NULL THEN\n" QUICK_NEXT("")                                                      \
    /* What is due and was not found is being claimed by somebody else: then not at once again. */ \
    "  IF n_found<" most " AND x_due<=x_now THEN " QUICK_NEXT(" AND r.due>x_now")                  \
    "   x_due := least(x_due,x_now+20); END IF; END IF;\n"                                         \
    " IF x_due IS NULL THEN x_due := " FN_NEVER "; END IF;\n"

/* One look alone. If it grants nothing it writes nothing and is not remembered. */
#define QUICK_CLAIM                                                                                \
    "CREATE OR REPLACE FUNCTION @claim(p_committer uuid, p_advance bigint, p_sticky bigint,"       \
    " p_turn int, p_seq bigint, p_session bigint, p_status int, p_count int, p_names bytea[],"     \
    " p_small int, p_alone boolean, OUT x_now bigint, OUT x_turn int, OUT x_due bigint,"           \
    " OUT x_run uuid[], OUT x_epoch bigint[], OUT x_inbox bigint[], OUT x_facts bytea[],"          \
    " OUT x_alone boolean) LANGUAGE plpgsql AS $function$\n"                                       \
    "DECLARE" QUICK_LOOK_VARIABLES "\n"                                                            \
    "BEGIN\n"                                                                                      \
    " x_now := " QUICK_NOW("clock_timestamp()") "; x_turn := p_turn;\n"
#define QUICK_CLAIM_LOOK                                                                           \
    QUICK_LOOK("p_count", "x_run", "x_epoch", "x_inbox", "x_facts", "x_now := NULL; RETURN;")
#define QUICK_CLAIM_END                                                                            \
    " IF n_found>0 THEN\n"                                                                         \
    QUICK_REMEMBERS("", "p_seq", "p_seq", "NULL", "ARRAY[p_seq]", "ARRAY[0]", "ARRAY[0]",          \
                    "ARRAY[0::bigint]", "ARRAY[x_due]", "array_fill(p_seq,ARRAY[n_found])",        \
                    "x_run", "x_epoch", "x_inbox")                                                 \
    " END IF;\n"                                                                                   \
    "END $function$;"

/* Runs come in the order of their IDs, values in that of space and key. Nobody but the holder of
 * the claim writes facts; if they do not end where they should, the batch is given up. Runs without
 * an inbox have nothing to be remembered. A look for work comes last: units behind it make nothing due.
 * One array is unnested and the others are indexed: each more of them in one call costs a store for
 * its rows, which takes longer than what is done with them. */
#define QUICK_TOLD(what) "CASE WHEN most>0 THEN " what " ELSE '{}' END"
#define QUICK_SOME(what, type) "coalesce(" what ",'{}'::" type "[])"
#define QUICK_STEPS                                                                                \
    "CREATE OR REPLACE FUNCTION @steps(p_committer uuid, p_token bytea, p_advance bigint,"         \
    " p_session bigint, p_first bigint, p_last bigint, p_seqs bigint[], p_run uuid[],"             \
    " p_epoch bigint[], p_inbox bigint[], p_seq bigint[], p_cond int[], p_rev bigint[],"           \
    " p_count int[], p_data bytea[], s_run uuid[], s_mask int[], s_status int[],"                  \
    " s_terminal boolean[], s_idle boolean[], s_due bigint[], s_ended bigint[], s_attempt int[],"  \
    " s_reason bytea[], s_extra bytea[], v_space bytea[], v_key bytea[], v_data bytea[],"          \
    " v_run uuid[], v_rev bigint[], t_fire bigint[], t_run uuid[], t_completion bigint[],"         \
    " p_sticky bigint, p_turn int, p_look bigint, p_status int, p_most int, p_names bytea[],"      \
    " p_small int, p_alone boolean, OUT x_now bigint, OUT x_inbox bigint[], OUT x_turn int,"       \
    " OUT x_due bigint, OUT y_run uuid[], OUT y_epoch bigint[], OUT y_inbox bigint[],"             \
    " OUT y_facts bytea[], OUT x_alone boolean) LANGUAGE plpgsql AS $function$\n"                  \
    "DECLARE n bigint; s_until bigint; most bigint;" QUICK_LOOK_VARIABLES "\n"                     \
    "BEGIN\n"                                                                                      \
    " SELECT count(*)," QUICK_NOW("max(clock_timestamp())") ",array_agg(r.inbox),max(r.inbox),"    \
    "  (SELECT s.lease_until FROM @sessions s WHERE s.session=p_session AND s.token=p_token AND "  \
    "   NOT s.closed) INTO n,x_now,x_inbox,most,s_until"                                           \
    "  FROM unnest(p_run) WITH ORDINALITY u(run,ord),"                                             \
    "  LATERAL (SELECT q.session,q.epoch,q.inbox FROM @runs q WHERE q.id=u.run"                    \
    "   FOR NO KEY UPDATE) r WHERE r.session=p_session AND r.epoch=p_epoch[u.ord]"                 \
    "   AND (p_inbox[u.ord] IS NULL OR r.inbox=p_inbox[u.ord]);\n"                                 \
    " IF n<>cardinality(p_run) OR s_until IS NULL OR s_until<=x_now THEN x_now := NULL; RETURN;"   \
    " END IF;\n"                                                                                   \
    " INSERT INTO @facts(run,rev,count,data) SELECT u.run,p_rev[u.ord],p_count[u.ord],"            \
    "  p_data[u.ord] FROM unnest(p_run) WITH ORDINALITY u(run,ord) WHERE coalesce((SELECT "        \
    "  f.rev+f.count-1 FROM @facts f WHERE f.run=u.run ORDER BY f.rev DESC LIMIT 1),0)="           \
    "  p_rev[u.ord]-1;\n"                                                                          \
    " GET DIAGNOSTICS n = ROW_COUNT;\n"                                                            \
    " IF n<>cardinality(p_run) THEN " FN_RACED " END IF;\n"                                        \
    " IF s_run IS NOT NULL THEN UPDATE @runs r SET status=s_status[u.ord],"                        \
    "  terminal=s_terminal[u.ord],session=0,due=s_due[u.ord],ended=s_ended[u.ord],"                \
    "  idle=s_idle[u.ord],"                                                                        \
    "  attempt=CASE WHEN s_mask[u.ord]&4<>0 THEN s_attempt[u.ord] ELSE r.attempt END,"             \
    "  reason=CASE WHEN s_mask[u.ord]&8<>0 THEN s_reason[u.ord] ELSE r.reason END,"                \
    "  extra=CASE WHEN s_mask[u.ord]&16<>0 THEN s_extra[u.ord] ELSE r.extra END"                   \
    "  FROM unnest(s_run) WITH ORDINALITY u(run,ord) WHERE r.id=u.run; END IF;\n"                  \
    " IF v_key IS NOT NULL THEN INSERT INTO @vals AS v(space,key,version,data,run,rev)"            \
    "  SELECT u.space,u.key,1,u.data,u.run,u.rev FROM unnest(v_space,v_key,v_data,v_run,v_rev)"    \
    "  u(space,key,data,run,rev) ON CONFLICT(space,key) DO UPDATE SET version=v.version+1,"        \
    "  data=excluded.data,run=excluded.run,rev=excluded.rev; END IF;\n"                            \
    " IF t_run IS NOT NULL THEN INSERT INTO @timers(fire,run,completion)"                          \
    "  SELECT * FROM unnest(t_fire,t_run,t_completion) ON CONFLICT DO NOTHING; END IF;\n"          \
    " IF p_names IS NOT NULL THEN x_turn := p_turn;\n"
#define QUICK_STEPS_LOOK                                                                           \
    QUICK_LOOK("p_most", "y_run", "y_epoch", "y_inbox", "y_facts", FN_RACED)
#define QUICK_STEPS_END                                                                            \
    QUICK_REMEMBERS("", "p_last", "p_first", "p_seqs", QUICK_TOLD("p_seq") "||p_look",             \
                    QUICK_TOLD("array_fill(0,ARRAY[n::int])") "||0",                               \
                    QUICK_TOLD("p_cond") "||0", QUICK_TOLD("x_inbox") "||0::bigint",               \
                    QUICK_TOLD("array_fill(" FN_NEVER ",ARRAY[n::int])") "||x_due",                \
                    "array_fill(p_look,ARRAY[n_found])", QUICK_SOME("y_run", "uuid"),              \
                    QUICK_SOME("y_epoch", "bigint"), QUICK_SOME("y_inbox", "bigint"))              \
    " ELSE\n"                                                                                      \
    QUICK_REMEMBERS("", "p_last", "p_first", "p_seqs", QUICK_TOLD("p_seq"),                        \
                    QUICK_TOLD("array_fill(0,ARRAY[n::int])"), QUICK_TOLD("p_cond"),               \
                    QUICK_TOLD("x_inbox"),                                                         \
                    QUICK_TOLD("array_fill(" FN_NEVER ",ARRAY[n::int])"), QUICK_NO_GRANTS)         \
    " END IF;\n"                                                                                   \
    "END $function$;"

/* Nobody else may execute it afterwards who could not before, so `idle` is false: it was claimed or
 * due, or it is due now. */
#define QUICK_WAKES "(r.session=0 AND (r.due IS NULL OR (p_hasten AND r.due>x_now)))"
/* Asked in the statement after the lock, which sees what was committed before it. */
#define QUICK_UNMARKED                                                                             \
    " AND NOT EXISTS(SELECT 1 FROM @base b WHERE b.space=g_space AND b.key=g_key)"
#define QUICK_WAKE                                                                                 \
    "CREATE OR REPLACE FUNCTION @wake(p_committer uuid, p_advance bigint, p_sticky bigint,"        \
    " p_seq bigint, p_run uuid, p_data bytea, p_status int, p_hasten boolean, p_space bytea,"      \
    " p_key bytea, p_version bigint, p_value bytea, p_vrun uuid, p_vrev bigint, g_space bytea,"    \
    " g_key bytea, OUT x_now bigint) LANGUAGE plpgsql AS $function$\n"                             \
    "BEGIN\n"                                                                                      \
    " x_now := " QUICK_NOW("clock_timestamp()") ";\n"                                              \
    " WITH w AS (UPDATE @runs r SET inbox=r.inbox+1,idle=false,"                                   \
    "  due=CASE WHEN " QUICK_WAKES " THEN x_now ELSE r.due END,"                                   \
    "  status=CASE WHEN " QUICK_WAKES " AND NOT " FN_STICKY("r.status")                            \
    "   THEN p_status ELSE r.status END"                                                           \
    "  WHERE r.id=p_run AND NOT r.terminal AND r.lane IS NULL AND (p_space IS NULL OR (SELECT "    \
    "  v.version FROM @vals v WHERE v.space=p_space AND v.key=p_key)=p_version)"                   \
    "  RETURNING r.inbox) INSERT INTO @inbox(run,seq,data) SELECT p_run,w.inbox,p_data FROM w;\n"  \
    " IF NOT FOUND THEN x_now := NULL; RETURN; END IF;\n"                                          \
    " IF p_space IS NOT NULL THEN UPDATE @vals v SET version=v.version+1,data=p_value,run=p_vrun," \
    "  rev=p_vrev WHERE v.space=p_space AND v.key=p_key AND v.version=p_version;\n"                \
    "  IF NOT FOUND THEN " FN_RACED " END IF; END IF;\n"                                           \
    " IF g_space IS NOT NULL THEN PERFORM pg_advisory_xact_lock_shared" FN_GUARD "; END IF;\n"     \
    QUICK_REMEMBERS(QUICK_UNMARKED, "p_seq", "p_seq", "NULL", "'{}'", "'{}'", "'{}'", "'{}'",      \
                    "'{}'", QUICK_NO_GRANTS)                                                       \
    "END $function$;"

/* As a look for due work, at one run. */
#define QUICK_ONE                                                                                  \
    "CREATE OR REPLACE FUNCTION @one(p_committer uuid, p_advance bigint, p_sticky bigint,"         \
    " p_seq bigint, p_session bigint, p_status int, p_run uuid, p_names bytea[], OUT x_now bigint,"\
    " OUT x_epoch bigint, OUT x_inbox bigint, OUT x_news bytea) LANGUAGE plpgsql AS $function$\n"  \
    "BEGIN\n"                                                                                      \
    " x_now := " QUICK_NOW("clock_timestamp()") ";\n"                                              \
    " " QUICK_GRANT " AND r.id=p_run AND r.session=0 AND r.due<=x_now AND NOT r.terminal"          \
    "  AND r.handler=ANY(p_names) RETURNING r.epoch,r.inbox,(SELECT i.data FROM @inbox i"          \
    "  WHERE i.run=r.id AND i.seq=r.inbox AND length(i.data)<=4096) INTO x_epoch,x_inbox,x_news;\n"\
    " IF NOT FOUND THEN RETURN; END IF;\n"                                                         \
    QUICK_REMEMBERS("", "p_seq", "p_seq", "NULL", "'{}'", "'{}'", "'{}'", "'{}'", "'{}'",          \
                    "ARRAY[p_seq]", "ARRAY[p_run]", "ARRAY[x_epoch]", "ARRAY[x_inbox]")            \
    "END $function$;"

const char *const stet__pg_quick_functions[] = { QUICK_STEPS, QUICK_STEPS_LOOK, QUICK_STEPS_END,
                                                 QUICK_WAKE,  QUICK_CLAIM,      QUICK_CLAIM_LOOK,
                                                 QUICK_CLAIM_END, QUICK_ONE,    NULL };
