# cli_app completion bash > ~/.local/share/bash-completion/completions/cli_app
_stet_cli_app() {
    local cur=${COMP_WORDS[COMP_CWORD]} verb= words= w
    for w in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case $w in -*) ;; *) verb="$verb${verb:+ }$w" ;; esac
    done
    case "$verb " in
    ' ') words=" worker start send wait ls show why cancel notes waits signal emit approve pause resume skip edit rewind fork fail retry resolve reject rollback unstick dlq state handlers workers health verify check describe export replay move schedule completion man help" ;;
    'worker '*) words=" --concurrency --worker --drain --log-level --set --until-idle --db --json --no-color --help" ;;
    'start '*) words=" --key --delay --at --attempts --idempotency-key --priority --group --timeout --deadline --label --retention --run --traceparent --tracestate --raw --wait --db --json --no-color --help" ;;
    'send '*) words=" --key --delay --at --attempts --idempotency-key --priority --group --timeout --deadline --label --retention --run --traceparent --tracestate --raw --db --json --no-color --help" ;;
    'wait '*) words=" --timeout --db --json --no-color --help" ;;
    'ls '*) words=" --status --handler --service --key --label --text --waits-for-signal --waits-for-topic --since --until --limit --look --before --worker --payloads --db --json --no-color --help" ;;
    'show '*) words=" --payloads --db --json --no-color --help" ;;
    'why '*) words=" --db --json --no-color --help" ;;
    'cancel '*) words=" --by --why --all --dry-run --status --handler --service --key --label --text --waits-for-signal --waits-for-topic --since --until --limit --look --before --db --json --no-color --help" ;;
    'notes '*) words=" --db --json --no-color --help" ;;
    'waits '*) words=" --people --for --handler --service --key --label --text --waits-for-signal --waits-for-topic --since --until --limit --look --before --db --json --no-color --help" ;;
    'signal '*) words=" --raw --idempotency-key --by --db --json --no-color --help" ;;
    'emit '*) words=" --raw --db --json --no-color --help" ;;
    'approve '*) words=" --by --note --db --json --no-color --help" ;;
    'pause '*) words=" --by --why --all --dry-run --status --handler --service --key --label --text --waits-for-signal --waits-for-topic --since --until --limit --look --before --db --json --no-color --help" ;;
    'resume '*) words=" --by --note --all --dry-run --status --handler --service --key --label --text --waits-for-signal --waits-for-topic --since --until --limit --look --before --db --json --no-color --help" ;;
    'skip '*) words=" --raw --by --why --all --dry-run --status --handler --service --key --label --text --waits-for-signal --waits-for-topic --since --until --limit --look --before --db --json --no-color --help" ;;
    'edit '*) words=" --raw --by --why --all --dry-run --status --handler --service --key --label --text --waits-for-signal --waits-for-topic --since --until --limit --look --before --db --json --no-color --help" ;;
    'rewind '*) words=" --start --by --why --all --dry-run --status --handler --service --key --label --text --waits-for-signal --waits-for-topic --since --until --limit --look --before --db --json --no-color --help" ;;
    'fork '*) words=" --by --why --all --dry-run --status --handler --service --key --label --text --waits-for-signal --waits-for-topic --since --until --limit --look --before --db --json --no-color --help" ;;
    'fail '*) words=" --by --why --all --dry-run --status --handler --service --key --label --text --waits-for-signal --waits-for-topic --since --until --limit --look --before --db --json --no-color --help" ;;
    'retry '*) words=" --by --why --all --dry-run --status --handler --service --key --label --text --waits-for-signal --waits-for-topic --since --until --limit --look --before --db --json --no-color --help" ;;
    'resolve '*) words=" --raw --db --json --no-color --help" ;;
    'reject '*) words=" --by --note --db --json --no-color --help" ;;
    'rollback '*) words=" --by --why --all --dry-run --status --handler --service --key --label --text --waits-for-signal --waits-for-topic --since --until --limit --look --before --db --json --no-color --help" ;;
    'unstick '*) words=" --by --all --dry-run --status --handler --service --key --label --text --waits-for-signal --waits-for-topic --since --until --limit --look --before --db --json --no-color --help" ;;
    'dlq ls '*) words=" --handler --service --key --label --text --waits-for-signal --waits-for-topic --since --until --limit --look --before --db --json --no-color --help" ;;
    'dlq retry '*) words=" --all --handler --db --json --no-color --help" ;;
    'dlq discard '*) words=" --all --handler --db --json --no-color --help" ;;
    'state get '*) words=" --db --json --no-color --help" ;;
    'handlers '*) words=" --db --json --no-color --help" ;;
    'workers '*) words=" --db --json --no-color --help" ;;
    'health '*) words=" --db --json --no-color --help" ;;
    'verify '*) words=" --repair --db --json --no-color --help" ;;
    'check '*) words=" --handler --time --operations --db --json --no-color --help" ;;
    'describe '*) words=" --input --raw --key --from --run --format --time --operations --db --json --no-color --help" ;;
    'export '*) words=" --out --db --json --no-color --help" ;;
    'replay '*) words=" --db --json --no-color --help" ;;
    'move '*) words=" --from --to --undo --db --json --no-color --help" ;;
    'schedule ls '*) words=" --limit --after --db --json --no-color --help" ;;
    'schedule show '*) words=" --db --json --no-color --help" ;;
    'schedule history '*) words=" --limit --db --json --no-color --help" ;;
    'schedule ensure '*) words=" --cron --tz --every --from-completion --at --after --function --overlap --missed --missed-max --grace --key --group --priority --timeout --raw --db --json --no-color --help" ;;
    'schedule update '*) words=" --cron --tz --every --from-completion --at --after --function --overlap --missed --missed-max --grace --key --group --priority --timeout --raw --db --json --no-color --help" ;;
    'schedule pause '*) words=" --by --db --json --no-color --help" ;;
    'schedule resume '*) words=" --db --json --no-color --help" ;;
    'schedule rm '*) words=" --db --json --no-color --help" ;;
    'schedule preview '*) words=" --tz -n --from --db --json --no-color --help" ;;
    'completion '*) words=" --db --json --no-color --help" ;;
    'man '*) words=" --db --json --no-color --help" ;;
    'help '*) words=" --db --json --no-color --help" ;;
    'dlq ') words=" ls retry discard" ;;
    'state ') words=" get" ;;
    'schedule ') words=" ls show history ensure update pause resume rm preview" ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _stet_cli_app cli_app
