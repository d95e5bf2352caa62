/* Compiled as C and as C++: layouts, the five functions, and those that were added. Prints what comes out. */
#include <infiniband/ib_acm.h>

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __cplusplus
#define CHECK(c) static_assert(c, #c)
#else
#define CHECK(c) _Static_assert(c, #c)
#endif
CHECK(sizeof(struct ib_acm_dev_addr) == 16 && offsetof(struct ib_acm_dev_addr, pkey_index) == 8);
CHECK(offsetof(struct ib_acm_dev_addr, port_num) == 10);
CHECK(sizeof(struct ib_acm_resolve_data) == 16 && offsetof(struct ib_acm_resolve_data, init_depth) == 4);
CHECK(offsetof(struct ib_acm_resolve_data, mtu) == 7);
CHECK(sizeof(struct ib_path_record) == 64 && offsetof(struct ib_path_record, dlid) == 40);
CHECK(offsetof(struct ib_path_record, reserved) == 58);
CHECK(sizeof(struct ib_acm_address) == 72 && sizeof(struct ib_acm_counters) == 64);
CHECK(sizeof(struct ib_acm_endpoint) == 96 && offsetof(struct ib_acm_endpoint, address_cnt) == 12);
CHECK(offsetof(struct ib_acm_endpoint, provider) == 16);
CHECK(sizeof(struct ib_acm_result) == 80 && offsetof(struct ib_acm_result, path) == 16);

static void print(const char *what, int result, const struct ib_path_record *path)
{
	const unsigned char *bytes = (const unsigned char *)path;
	size_t i;

	printf("%s %d ", what, result);
	for (i = 0; path && i < sizeof(*path); i++)
		printf("%02x", bytes[i]);
	printf("\n");
}

static void each(void *context, size_t index, int result, const struct ib_path_record *path)
{
	*(size_t *)context += index + 1;
	if (index < 2)
		print(index ? "many1" : "many0", result, path);
}

/* What libibverbs says of the device that a path starts at. */
static void device(uint64_t guid)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device_attr attr;
	int i;

	for (i = 0; list && list[i]; i++) {
		struct ibv_context *context = ibv_open_device(list[i]);

		if (context && ibv_get_device_guid(list[i]) == guid && !ibv_query_device(context, &attr))
			printf("device %d %d\n", attr.max_qp_init_rd_atom, attr.max_qp_rd_atom);
		if (context)
			ibv_close_device(context);
	}
	if (list)
		ibv_free_device_list(list);
}

/* Records, counters and endpoints. */
static void more(const char *v4, const char *name, const struct ib_acm_dev_addr *dev, const struct ibv_ah_attr *ah)
{
	struct ib_acm_resolve_data data;
	struct ib_acm_dev_addr dev2;
	struct ibv_ah_attr ah2;
	struct ib_acm_counters totals, counters;
	struct ib_acm_address source, addresses[16];
	struct ib_acm_endpoint endpoint;
	struct ib_path_record path;
	unsigned int i, named = 0;
	int n, result;

	printf("connect %d\n", ib_acm_connect());
	n = ib_acm_resolve(NULL, v4, 0, &path, &source);
	print("record", n, &path);
	printf("source %s\n", source.text);
	memset(&dev2, 0, sizeof(dev2));
	memset(&ah2, 0, sizeof(ah2));
	n = ib_acm_convert_from_path(&path, &dev2, &ah2, &data);
	printf("from %d %d %d\n", n, dev2.guid == dev->guid && dev2.port_num == dev->port_num,
	       ah2.dlid == ah->dlid && ah2.sl == ah->sl && ah2.static_rate == ah->static_rate);
	n = ib_acm_resolve(NULL, v4, IB_ACM_CACHED, &path, NULL);
	print("cached", n, &path);
	/* Nobody has this address. */
	printf("unknown %d\n", ib_acm_resolve(NULL, "10.77.0.99", IB_ACM_CACHED, &path, NULL));

	n = ib_acm_query_counters(0, NULL, &totals);
	result = ib_acm_query_counters(1, NULL, &counters);
	printf("counters %d %d %d %d\n", n, result, totals.resolve >= 5, totals.resolve >= counters.resolve);
	printf("of %d %d\n", ib_acm_query_counters(0, name, &counters), ib_acm_query_counters(99, NULL, &counters));

	memset(addresses, 0xee, sizeof(addresses));
	for (n = 1; !(result = ib_acm_query_endpoint(n, 0, &endpoint, addresses, 16)); n++) {
		for (i = 0; i < 16 && i < endpoint.address_cnt; i++)
			named += !strcmp(addresses[i].text, name);
		printf("endpoint %d %u %u %d\n", endpoint.guid == dev->guid, endpoint.port_num, endpoint.port_cnt,
		       endpoint.address_cnt > 2);
	}
	printf("endpoints %d %d %u\n", n - 1, result, named);
	memset(addresses, 0xee, sizeof(addresses));
	n = ib_acm_query_endpoint(1, 0, &endpoint, addresses, 1);
	printf("bounded %d %d %d\n", n, (unsigned char)addresses[0].text[71], (unsigned char)addresses[1].text[0]);
	errno = 0;
	n = ib_acm_resolve(NULL, v4, 2, &path, NULL);
	printf("flags %d %d\n", n, errno == EINVAL);
}

static int failed(const char *what, int result)
{
	printf("%s %d %d\n", what, result, result < 0 ? errno : 0);
	return 0;
}

int main(int argc, char **argv)
{
	struct ib_acm_dev_addr dev;
	struct ibv_ah_attr ah;
	struct ib_acm_resolve_data data;
	struct ib_path_record path;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct ib_acm_session *session;
	struct ib_acm_result result;
	const char *dests[50];
	size_t sum = 0, i;
	int status, n;
	uint64_t ticket = 99;
	uint16_t slid;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 5)
		return 2;
	if (ib_acm_set_server(*argv[1] ? argv[1] : NULL) || ib_acm_set_timeout(15000))
		return 3;
	memset(&in, 0, sizeof(in));
	memset(&in6, 0, sizeof(in6));
	in.sin_family = AF_INET;
	in6.sin6_family = AF_INET6;
	if (inet_pton(AF_INET, argv[2], &in.sin_addr) != 1 || inet_pton(AF_INET6, argv[3], &in6.sin6_addr) != 1)
		return 4;

	memset(&dev, 0xee, sizeof(dev));
	memset(&ah, 0xee, sizeof(ah));
	memset(&data, 0xee, sizeof(data));
	n = ib_acm_resolve_ip(NULL, (struct sockaddr *)&in, &dev, &ah, &data);
	if (n)
		return failed("resolve_ip", n);
	printf("dev %016llx %u %u\n", (unsigned long long)dev.guid, dev.pkey_index, dev.port_num);
	printf("ah %u %u %u %u %u %u\n", ah.dlid, ah.sl, ah.src_path_bits, ah.static_rate, ah.is_global, ah.port_num);
	printf("data %u %u %u %u\n", data.init_depth, data.resp_resources, data.packet_lifetime, data.mtu);
	device(dev.guid);
	n = ib_acm_convert_to_path(&dev, &ah, &data, &path);
	print("convert", n, &path);
	n = ib_acm_resolve_ip(NULL, (struct sockaddr *)&in6, NULL, &ah, NULL);
	printf("ip6 %d %u\n", n, ah.dlid);
	n = ib_acm_resolve_name(argv[4], argv[5], &dev, &ah, &data);
	printf("name %d %u\n", n, ah.dlid);

	memset(&path, 0, sizeof(path));
	path.dlid = htons(ah.dlid);
	n = ib_acm_resolve_path(&path);
	print("path", n, &path);
	/* Without a source some services ask for a path from anywhere. */
	slid = path.slid;
	memset(&path, 0, sizeof(path));
	path.dlid = htons(ah.dlid);
	path.slid = slid;
	n = ib_acm_query_path(&path);
	print("query", n, &path);
	/* Nobody has this LID. */
	memset(&path, 0, sizeof(path));
	path.dlid = htons(0x7777);
	n = ib_acm_query_path(&path);
	printf("nobody %d %d %s\n", n > 0, n == ib_acm_last_status(), n > 0 ? "status" : "errno");

	for (i = 0; i < 50; i++)
		dests[i] = i % 2 ? argv[3] : argv[2];
	n = ib_acm_resolve_many(NULL, dests, 50, each, &sum);
	printf("many %d %zu\n", n, sum);

	session = ib_acm_session_open(*argv[1] ? argv[1] : NULL);
	if (!session || ib_acm_submit_ip(session, NULL, (struct sockaddr *)&in, 15000, &ticket))
		return 5;
	do {
		struct pollfd p = { ib_acm_session_fd(session), ib_acm_session_events(session), 0 };

		poll(&p, 1, ib_acm_session_timeout(session));
	} while (ib_acm_session_ready(session) > 0);
	n = ib_acm_session_result(session, &result);
	print("session", n == 1 && result.ticket == ticket ? result.result : -1, &result.path);
	ib_acm_session_close(session);

	more(argv[2], argv[4], &dev, &ah);

	/* The child and the parent each have a connection. */
	fflush(stdout);
	n = fork();
	if (!n)
		_exit(ib_acm_resolve_ip(NULL, (struct sockaddr *)&in, NULL, NULL, NULL) ? 1 : 0);
	status = ib_acm_resolve_ip(NULL, (struct sockaddr *)&in, NULL, NULL, NULL);
	waitpid(n, &n, 0);
	printf("fork %d %d\n", status, n);

	/* What cannot be asked. */
	errno = 0;
	n = ib_acm_resolve_name(NULL, NULL, &dev, &ah, &data);
	printf("null %d %d\n", n, errno == EINVAL);
	errno = 0;
	n = ib_acm_set_server("10.77.0.1:port");
	printf("port %d %d\n", n, errno == EINVAL);
	/* With time enough: what the resolver holds while a program ends is reported as a leak. */
	n = ib_acm_set_server("nobody.invalid");
	printf("host %d %d\n", n, errno == EHOSTUNREACH || errno == ETIMEDOUT);
	ib_acm_set_timeout(100);
	ib_acm_set_server("/nowhere/ibacm.sock");
	n = ib_acm_resolve_path(&path);
	printf("nowhere %d %d %s\n", n, errno == ENOENT, ib_acm_status_str(3));
	return 0;
}
