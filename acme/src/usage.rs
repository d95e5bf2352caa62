//! What is printed for a command line that is not understood, and for `--help`.

use ibacm::dirs;

/// The text that scripts may know. It does not change with what is new; that is in [`help`].
pub fn usage(program: &str) -> String {
    let conf = dirs::CONF;
    format!(
        "\
usage 1: {program}
Query specified ibacm service for data
   [-e [N]]         - display one or all endpoints:
                        No index: all endpoints
                        N: endpoint N (N = 1, 2, ...)
   [-f addr_format] - i(p), n(ame), l(id), g(gid), or u(nspecified)
                      address format for -s and -d options, default: 'u'
   [-s src_addr]    - source address for path queries
   [-d dest_addr]   - destination addresses for path queries
   [-v]             - verify ACM response against SA query response
   [-c]             - read ACM cached data only
   [-P [opt]]       - query performance data from destination service:
                        No option: output combined data in row format.
                        col: output combined data in column format.
                        N: output data for endpoint N (N = 1, 2,...)
                        all: output data for all endpoints
                        s: output data for the endpoint with the
                           address specified in -s option
   [-S svc_addr]    - address of ACM service, default: local service
   [-C repetitions] - repeat count for resolution
usage 2: {program}
Generate default ibacm service configuration and option files
   -A [addr_file]   - generate local address configuration file
                      (default is ibacm_addr.cfg)
   -O [opt_file]    - generate local ibacm_opts.cfg options file
                      (default is ibacm_opts.cfg)
   -D dest_dir      - specify destination directory for output files
                      (default is {conf})
   -V               - enable verbose output
"
    )
}

/// What is new beside that.
pub fn help(program: &str) -> String {
    let usage = usage(program);
    format!(
        "\
{usage}
These are not in every ib_acme:
   --all-counters   - with -P, those too that not every service has
   --json           - one JSON document in place of text
   --timeout SECONDS
                    - how long to wait for each answer of the service, default: 60
   --stats          - after -C: requests a second and percentiles of latency.
                      On a terminal, and with the next two, they are shown without it
   --parallel K     - spread the repetitions of -C over K connections
   --warmup N       - look up N times more, before counting starts
   -h, --help       - this text
   --version        - the version
{program} check       - tells whether this host is healthy: {program} check --help
{program} completions bash|zsh|fish
                    - prints a script that completes command lines

Multiple destinations, sources and services are written in brackets: node[1-3,5,07-10].
The manual is ib_acme(1).
"
    )
}
