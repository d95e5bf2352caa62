/*
 * Makes every call some times: faults SERVER MILLISECONDS ROUNDS
 * Prints for each what came of it (0, a status, or a negative errno) and how many milliseconds it took; at the end the
 * descriptors and the bytes of memory in use, early and late.
 */
#include <infiniband/ib_acm.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MANY 8

static const char *server;
static int limit;
static struct sockaddr_in in = { .sin_family = AF_INET };

static int number(int result)
{
	return result < 0 ? -errno : result;
}

static int by_name(void)
{
	char src[] = "here", dest[] = "there";

	return number(ib_acm_resolve_name(src, dest, NULL, NULL, NULL));
}

static int by_ip(void)
{
	return number(ib_acm_resolve_ip(NULL, (struct sockaddr *)&in, NULL, NULL, NULL));
}

static int of_record(int (*function)(struct ib_path_record *))
{
	struct ib_path_record path;

	memset(&path, 0, sizeof(path));
	path.dlid = htons(7);
	return number(function(&path));
}

static int path(void)
{
	return of_record(ib_acm_resolve_path);
}

static int query(void)
{
	return of_record(ib_acm_query_path);
}

/* Asks the devices of this host, whatever the service does. */
static int convert(void)
{
	struct ib_acm_dev_addr dev = { .guid = 1 };
	struct ib_acm_resolve_data data = { .mtu = 4 };
	struct ibv_ah_attr ah = { .dlid = 7 };
	struct ib_path_record record;

	return number(ib_acm_convert_to_path(&dev, &ah, &data, &record));
}

struct seen {
	int calls;
	int worst;
};

static void each(void *context, size_t index, int result, const struct ib_path_record *record)
{
	struct seen *seen = context;

	if (index >= MANY || !record != !!result)
		abort();
	seen->calls++;
	if (result)
		seen->worst = result;
}

static int many(void)
{
	const char *dests[MANY];
	struct seen seen = { 0, 0 };
	int i, failed;

	for (i = 0; i < MANY; i++)
		dests[i] = "10.77.0.2";
	failed = ib_acm_resolve_many(NULL, dests, MANY, each, &seen);
	if (seen.calls != MANY || !failed != !seen.worst)
		abort();
	return seen.worst;
}

static int record(void)
{
	struct ib_path_record found;
	struct ib_acm_address source;

	return number(ib_acm_resolve("here", "10.77.0.2", 0, &found, &source));
}

static int cached(void)
{
	return number(ib_acm_resolve(NULL, "10.77.0.2", IB_ACM_CACHED, NULL, NULL));
}

static int counters(void)
{
	struct ib_acm_counters found;

	return number(ib_acm_query_counters(0, NULL, &found));
}

static int endpoint(void)
{
	struct ib_acm_endpoint found;
	struct ib_acm_address addresses[2];

	return number(ib_acm_query_endpoint(1, 0, &found, addresses, 2));
}

static int session(void)
{
	struct ib_acm_session *s = ib_acm_session_open(server);
	struct ib_acm_result result;
	int i, worst = 0, results = 0, pending = MANY;

	if (!s)
		return -errno;
	for (i = 0; i < MANY; i++)
		if (ib_acm_submit(s, NULL, "10.77.0.2", 0, limit, NULL))
			abort();
	while (pending) {
		struct pollfd p = { ib_acm_session_fd(s), ib_acm_session_events(s), 0 };

		poll(&p, 1, ib_acm_session_timeout(s));
		pending = ib_acm_session_ready(s);
		while (ib_acm_session_result(s, &result) == 1) {
			results++;
			if (result.result)
				worst = result.result;
		}
	}
	if (results != MANY)
		abort();
	ib_acm_session_close(s);
	return worst;
}

/* Closed while everything is open. */
static int left(void)
{
	struct ib_acm_session *s = ib_acm_session_open(server);
	int i;

	if (!s)
		return -errno;
	for (i = 0; i < MANY; i++) {
		ib_acm_submit_ip(s, NULL, (struct sockaddr *)&in, limit, NULL);
		ib_acm_session_ready(s);
	}
	ib_acm_session_close(s);
	return 0;
}

static int call_connect(void)
{
	return number(ib_acm_connect());
}

static const struct {
	const char *name;
	int (*function)(void);
} calls[] = {
	{ "name", by_name }, { "ip", by_ip }, { "path", path }, { "query", query }, { "convert", convert },
	{ "many", many }, { "session", session }, { "left", left }, { "record", record }, { "cached", cached },
	{ "counters", counters }, { "endpoint", endpoint }, { "connect", call_connect },
};

static long milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int n = 0;

	while (directory && readdir(directory))
		n++;
	closedir(directory);
	return n;
}

int main(int argc, char **argv)
{
	int rounds = argc == 4 ? atoi(argv[3]) : 0, round, early_fds = 0;
	size_t early = 0, i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (rounds < 1)
		return 2;
	server = argv[1];
	limit = atoi(argv[2]);
	inet_pton(AF_INET, "10.77.0.2", &in.sin_addr);
	if (ib_acm_set_server(server) || ib_acm_set_timeout(limit))
		return 3;
	for (round = 0; round < rounds; round++) {
		for (i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
			long begin = milliseconds();
			int result = calls[i].function();

			printf("%s %d %ld\n", calls[i].name, result, milliseconds() - begin);
		}
		if (round == rounds / 2) {
			early = mallinfo2().uordblks;
			early_fds = descriptors();
		}
	}
	printf("descriptors %d %d\n", early_fds, descriptors());
	printf("memory %zu %zu\n", early, mallinfo2().uordblks);
	return 0;
}
