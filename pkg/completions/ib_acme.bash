# bash completion for ib_acme(1), as `ib_acme completions bash` prints it.

# Of the words that follow, each with what it means, those that begin with the first argument.
__ib_acme_words() {
    local cur=$1 i
    local -a found=() means=()
    shift
    while (($# > 1)); do
        if [[ $1 == "$cur"* ]]; then
            found+=("$1")
            means+=("$2")
        fi
        shift 2
    done
    # Where they are only listed, there is room for what they mean.
    if ((${#found[@]} > 1)) && [[ ${COMP_TYPE-} == 63 ]]; then
        for i in "${!found[@]}"; do
            printf -v 'found[i]' '%-12s  %s' "${found[i]}" "${means[i]}"
        done
    fi
    COMPREPLY+=("${found[@]}")
}

__ib_acme_hosts() {
    if declare -F _known_hosts_real >/dev/null; then
        _known_hosts_real -- "$1"
    else
        mapfile -t COMPREPLY < <(compgen -A hostname -- "$1")
    fi
}

__ib_acme_files() { # kind, word
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -A "$1" -- "$2")
    # It cannot be said outside of a completion, as in a test.
    compopt -o filenames 2>/dev/null
}

_ib_acme() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=
    COMPREPLY=()
    # bash takes the = of --timeout=5 for a word.
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]] && ((COMP_CWORD > 1)); then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]}
    case $command in
        check)
            # Several letters behind one dash: the last one counts.
            [[ $prev =~ ^-[qh]+([Sd])$ ]] && prev=-${BASH_REMATCH[1]}
            case $prev in
                -S)
                    [[ $cur == /* ]] || __ib_acme_hosts "$cur"
                    __ib_acme_files file "${cur:-/run/ibacm}"
                    return
                    ;;
                -d)
                    __ib_acme_hosts "$cur"
                    return
                    ;;
                --timeout)
                    return
                    ;;
            esac
            __ib_acme_words "$cur" \
                -S 'service to check, a socket file or a host' \
                -d 'peer that has to answer, several with commas' \
                --timeout 'how long to wait for each answer' \
                --json 'one JSON document in place of text' \
                -q 'show only what is not as it should be' \
                --quiet 'show only what is not as it should be' \
                -h 'show what there is' \
                --help 'show what there is'
            ;;
        completions)
            __ib_acme_words "$cur" \
                bash 'script for bash' \
                zsh 'script for zsh' \
                fish 'script for fish'
            __ib_acme_words "$cur" \
                -h 'show what there is' \
                --help 'show what there is'
            ;;
        *)
            # Several letters behind one dash: the last one counts.
            [[ $prev =~ ^-[vcVh]+([fsdCePSAOD])$ ]] && prev=-${BASH_REMATCH[1]}
            case $prev in
                -f)
                    __ib_acme_words "$cur" \
                        i 'IP addresses' \
                        n 'names that the service knows' \
                        l 'LIDs' \
                        g 'GIDs' \
                        u 'whatever they look like'
                    return
                    ;;
                -s | -d)
                    __ib_acme_hosts "$cur"
                    return
                    ;;
                -C | --parallel | --warmup | --timeout)
                    return
                    ;;
                -P)
                    if [[ $cur != -* ]]; then
                        __ib_acme_words "$cur" \
                            col 'the totals, a line for each counter' \
                            all 'those of every endpoint' \
                            s 'those of the endpoint with the address of -s'
                        return
                    fi
                    ;;
                -S)
                    [[ $cur == /* ]] || __ib_acme_hosts "$cur"
                    __ib_acme_files file "${cur:-/run/ibacm}"
                    return
                    ;;
                -A | -O)
                    if [[ $cur != -* ]]; then
                        __ib_acme_files file "$cur"
                        return
                    fi
                    ;;
                -D)
                    __ib_acme_files directory "$cur"
                    return
                    ;;
            esac
            if ((COMP_CWORD == 1)); then
                __ib_acme_words "$cur" \
                    check 'tell whether this host is healthy' \
                    completions 'print a script that completes command lines'
            fi
            __ib_acme_words "$cur" \
                -f 'what destination and source are' \
                -s 'address of this host that the path starts from' \
                -d 'destination to resolve, several with brackets' \
                -v 'have the subnet administrator confirm the path' \
                -c 'only what the service has in its cache' \
                -C 'resolve so many times' \
                --stats 'with -C, requests a second and percentiles of latency' \
                --parallel 'spread the repetitions over so many connections' \
                --warmup 'resolve so many times more before counting starts' \
                -e 'list endpoints, or the one with this number' \
                -P 'show counters of the service or of its endpoints' \
                --all-counters 'with -P, those too that not every service has' \
                -S 'service to ask, a socket file or a host' \
                --json 'one JSON document in place of text' \
                --timeout 'how long to wait for each answer of the service' \
                -A 'write a file of names' \
                -O 'write a file of options' \
                -D 'where to write files' \
                -V 'say more' \
                -h 'show what there is' \
                --help 'show what there is' \
                --version 'show the version'
            ;;
    esac
}

complete -F _ib_acme ib_acme
