/*
 * Arguments that are not aligned, names that are not UTF-8, and what the last call has returned: arguments SOCKET
 * The service there has one endpoint, whose second address is a name that is not UTF-8.
 */
#include <infiniband/ib_acm.h>

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define CHECK(c)                                             \
	do {                                                 \
		if (!(c)) {                                  \
			printf("line %d: %s\n", __LINE__, #c); \
			return 1;                            \
		}                                            \
	} while (0)

/* Room for the largest of what is asked for, at an odd address. */
#define ODD(type) ((type *)(void *)(room[used++] + 1))

static char room[32][512];
static int used;

static void each(void *context, size_t index, int result, const struct ib_path_record *path)
{
	(void)index;
	(void)path;
	*(int *)context += result == 0;
}

static int unaligned(const char *server)
{
	struct ib_acm_counters *counters = ODD(struct ib_acm_counters);
	struct ib_acm_endpoint *endpoint = ODD(struct ib_acm_endpoint);
	struct ib_acm_address *addresses = ODD(struct ib_acm_address);
	struct ib_path_record *path = ODD(struct ib_path_record);
	struct ib_acm_result *result = ODD(struct ib_acm_result);
	struct ib_acm_dev_addr *dev = ODD(struct ib_acm_dev_addr);
	struct ib_acm_resolve_data *data = ODD(struct ib_acm_resolve_data);
	struct ibv_ah_attr *ah = ODD(struct ibv_ah_attr);
	struct sockaddr_in *in = ODD(struct sockaddr_in);
	const char *name = "10.77.0.2", **dests = ODD(const char *);
	uint64_t *ticket = ODD(uint64_t), copy;
	struct ib_acm_session *session;
	struct sockaddr_in address = { .sin_family = AF_INET };
	int answered = 0, n;

	CHECK(!ib_acm_query_counters(0, NULL, counters));
	CHECK(!ib_acm_query_endpoint(1, 0, endpoint, addresses, 2));
	CHECK(!strcmp(addresses[0].text, "here"));
	CHECK(!ib_acm_resolve(NULL, name, 0, path, addresses));
	CHECK(!ib_acm_resolve_path(path));
	inet_pton(AF_INET, name, &address.sin_addr);
	memcpy(in, &address, sizeof(address));
	/* No device here has these paths. */
	CHECK(ib_acm_resolve_ip(NULL, (struct sockaddr *)in, dev, ah, data) == -1 && errno == ENODEV);
	CHECK(ib_acm_convert_from_path(path, dev, ah, data) == -1 && errno == ENODEV);
	CHECK(ib_acm_convert_to_path(dev, ah, data, path) == -1 && errno == ENODEV);
	memcpy(dests, &name, sizeof(name));
	CHECK(!ib_acm_resolve_many(NULL, dests, 1, each, &answered) && answered == 1);
	session = ib_acm_session_open(server);
	CHECK(session && !ib_acm_submit(session, NULL, name, 0, 8000, ticket));
	do {
		struct pollfd p = { ib_acm_session_fd(session), ib_acm_session_events(session), 0 };

		poll(&p, 1, ib_acm_session_timeout(session));
		n = ib_acm_session_ready(session);
	} while (n > 0);
	CHECK(ib_acm_session_result(session, result) == 1);
	memcpy(&copy, ticket, sizeof(copy));
	CHECK(!memcmp(&result->ticket, &copy, sizeof(copy)));
	ib_acm_session_close(session);
	return 0;
}

static int names(void)
{
	struct ib_acm_endpoint endpoint;
	struct ib_acm_address addresses[2];
	struct ib_acm_counters counters;
	struct ib_path_record path;

	CHECK(!ib_acm_query_endpoint(1, 0, &endpoint, addresses, 2));
	CHECK(!strcmp(addresses[1].text, "n\xe4me"));
	/* The service knows nobody else. */
	CHECK(!ib_acm_query_counters(0, addresses[1].text, &counters));
	CHECK(ib_acm_query_counters(0, "n\xc3\xa4me", &counters) == 7);
	CHECK(!ib_acm_resolve(addresses[1].text, addresses[1].text, 0, &path, NULL));
	CHECK(!ib_acm_resolve_name(addresses[1].text, addresses[1].text, NULL, NULL, NULL));
	CHECK(ib_acm_resolve_name(NULL, (char *)"\xff", NULL, NULL, NULL) == 7);
	return 0;
}

static int last(void)
{
	struct ib_acm_counters counters;
	struct ib_acm_dev_addr dev;
	struct ib_path_record path;

	CHECK(ib_acm_query_counters(0, "nobody", &counters) == 7 && ib_acm_last_status() == 7);
	/* These ask nobody. */
	memset(&path, 7, sizeof(path));
	CHECK(ib_acm_convert_from_path(&path, &dev, NULL, NULL) == -1 && ib_acm_last_status() == 7);
	CHECK(ib_acm_convert_to_path(NULL, NULL, NULL, NULL) == -1 && ib_acm_last_status() == 7);
	CHECK(ib_acm_set_timeout(0) == -1 && ib_acm_set_server("\xff") == -1 && ib_acm_last_status() == 7);
	CHECK(!ib_acm_connect() && ib_acm_last_status() == 0);
	/* What is wrong in the arguments goes before what no service has. */
	errno = 0;
	CHECK(ib_acm_query_counters(300, NULL, NULL) == -1 && errno == EINVAL && ib_acm_last_status() == -1);
	CHECK(ib_acm_query_counters(300, NULL, &counters) == 2 && ib_acm_last_status() == 2);
	CHECK(!strcmp(ib_acm_status_str(3), "no data") && !strcmp(ib_acm_status_str(-1), "unknown status"));
	CHECK(!strcmp(ib_acm_status_str(0), "success") && !strcmp(ib_acm_status_str(300), "unknown status"));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 2 || ib_acm_set_server(argv[1]) || ib_acm_set_timeout(8000))
		return 2;
	return unaligned(argv[1]) || names() || last();
}
