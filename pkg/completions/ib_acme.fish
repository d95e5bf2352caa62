# fish completion for ib_acme(1), as `ib_acme completions fish` prints it.

# Whether the command line is one of this command; without a command it is one of none.
function __ib_acme_command
    set -l words (commandline -opc)
    set -l command none
    set -q words[2]; and contains -- $words[2] check completions; and set command $words[2]
    test $command = $argv[1]
end

# Whether only the first word is missing.
function __ib_acme_first
    test (count (commandline -opc)) -eq 1
end

# Whether the word before ends with this option, after whatever letters that take no value.
function __ib_acme_behind
    string match --quiet --regex -- "^-[$argv[2]]*$argv[1]\$" (commandline -opc)[-1]
end

complete -c ib_acme -f
complete -c ib_acme -n __ib_acme_first -a check -d 'tell whether this host is healthy'
complete -c ib_acme -n __ib_acme_first -a completions -d 'print a script that completes command lines'

complete -c ib_acme -n '__ib_acme_command none' -s f -x -a "i\t'IP addresses' n\t'names that the service knows' l\t'LIDs' g\t'GIDs' u\t'whatever they look like'" -d 'what destination and source are'
complete -c ib_acme -n '__ib_acme_command none' -s s -x -a '(__fish_print_hostnames)' -d 'address of this host that the path starts from'
complete -c ib_acme -n '__ib_acme_command none' -s d -x -a '(__fish_print_hostnames)' -d 'destination to resolve, several with brackets'
complete -c ib_acme -n '__ib_acme_command none' -s v -d 'have the subnet administrator confirm the path'
complete -c ib_acme -n '__ib_acme_command none' -s c -d 'only what the service has in its cache'
complete -c ib_acme -n '__ib_acme_command none' -s C -x -d 'resolve so many times'
complete -c ib_acme -n '__ib_acme_command none' -l stats -d 'with -C, requests a second and percentiles of latency'
complete -c ib_acme -n '__ib_acme_command none' -l parallel -x -d 'spread the repetitions over so many connections'
complete -c ib_acme -n '__ib_acme_command none' -l warmup -x -d 'resolve so many times more before counting starts'
complete -c ib_acme -n '__ib_acme_command none' -s e -d 'list endpoints, or the one with this number'
complete -c ib_acme -n '__ib_acme_command none' -s P -d 'show counters of the service or of its endpoints'
complete -c ib_acme -n '__ib_acme_command none; and __ib_acme_behind P vcVh' -a "col\t'the totals, a line for each counter' all\t'those of every endpoint' s\t'those of the endpoint with the address of -s'"
complete -c ib_acme -n '__ib_acme_command none' -l all-counters -d 'with -P, those too that not every service has'
complete -c ib_acme -n '__ib_acme_command none' -s S -r -F -a '(__fish_print_hostnames)' -d 'service to ask, a socket file or a host'
complete -c ib_acme -n '__ib_acme_command none' -l json -d 'one JSON document in place of text'
complete -c ib_acme -n '__ib_acme_command none' -l timeout -x -d 'how long to wait for each answer of the service'
complete -c ib_acme -n '__ib_acme_command none' -s A -d 'write a file of names'
complete -c ib_acme -n '__ib_acme_command none; and __ib_acme_behind A vcVh' -F
complete -c ib_acme -n '__ib_acme_command none' -s O -d 'write a file of options'
complete -c ib_acme -n '__ib_acme_command none; and __ib_acme_behind O vcVh' -F
complete -c ib_acme -n '__ib_acme_command none' -s D -x -a '(__fish_complete_directories)' -d 'where to write files'
complete -c ib_acme -n '__ib_acme_command none' -s V -d 'say more'
complete -c ib_acme -n '__ib_acme_command none' -s h -l help -d 'show what there is'
complete -c ib_acme -n '__ib_acme_command none' -l version -d 'show the version'

complete -c ib_acme -n '__ib_acme_command check' -s S -r -F -a '(__fish_print_hostnames)' -d 'service to check, a socket file or a host'
complete -c ib_acme -n '__ib_acme_command check' -s d -x -a '(__fish_print_hostnames)' -d 'peer that has to answer, several with commas'
complete -c ib_acme -n '__ib_acme_command check' -l timeout -x -d 'how long to wait for each answer'
complete -c ib_acme -n '__ib_acme_command check' -l json -d 'one JSON document in place of text'
complete -c ib_acme -n '__ib_acme_command check' -s q -l quiet -d 'show only what is not as it should be'
complete -c ib_acme -n '__ib_acme_command check' -s h -l help -d 'show what there is'

complete -c ib_acme -n '__ib_acme_command completions' -s h -l help -d 'show what there is'
complete -c ib_acme -n '__ib_acme_command completions' -a bash -d 'script for bash'
complete -c ib_acme -n '__ib_acme_command completions' -a zsh -d 'script for zsh'
complete -c ib_acme -n '__ib_acme_command completions' -a fish -d 'script for fish'
