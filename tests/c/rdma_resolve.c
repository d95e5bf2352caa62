/*
 * Resolves an address through librdmacm and prints what comes back.
 *
 *     rdma_resolve 4|6|ib SOURCE|- DESTINATION [numeric] [twice]
 *
 * Output: "path" and the path record in hexadecimal, or "path none"; then "source" and the source address of the
 * answer, or "source none".
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <infiniband/ib.h>
#include <infiniband/sa.h>
#include <rdma/rdma_cma.h>

static void print_path(const struct rdma_addrinfo *found)
{
	const struct ibv_path_data *data = found->ai_route;
	const unsigned char *byte = (const unsigned char *)&data->path;
	size_t i;

	printf("path ");
	if (found->ai_route_len < (int)sizeof(*data)) {
		printf("none\n");
		return;
	}
	for (i = 0; i < sizeof(data->path); i++)
		printf("%02x", byte[i]);
	printf("\n");
}

static void print_source(const struct rdma_addrinfo *found)
{
	char text[INET6_ADDRSTRLEN] = "none";

	for (; found; found = found->ai_next) {
		if (!found->ai_src_len)
			continue;
		if (found->ai_family == AF_INET)
			inet_ntop(AF_INET, &((struct sockaddr_in *)found->ai_src_addr)->sin_addr, text, sizeof(text));
		else if (found->ai_family == AF_INET6)
			inet_ntop(AF_INET6, &((struct sockaddr_in6 *)found->ai_src_addr)->sin6_addr, text, sizeof(text));
	}
	printf("source %s\n", text);
}

int main(int argc, char **argv)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *found;
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	int times = 1, i;

	if (argc < 4)
		return 2;
	if (!strcmp(argv[1], "4")) {
		hints.ai_family = AF_INET;
		if (inet_pton(AF_INET, argv[2], &in.sin_addr) == 1) {
			hints.ai_src_addr = (struct sockaddr *)&in;
			hints.ai_src_len = sizeof(in);
		}
	} else if (!strcmp(argv[1], "6")) {
		hints.ai_family = AF_INET6;
		if (inet_pton(AF_INET6, argv[2], &in6.sin6_addr) == 1) {
			hints.ai_src_addr = (struct sockaddr *)&in6;
			hints.ai_src_len = sizeof(in6);
		}
	} else {
		hints.ai_family = AF_IB;
		hints.ai_flags = RAI_FAMILY | RAI_NUMERICHOST;
	}
	for (i = 4; i < argc; i++) {
		if (!strcmp(argv[i], "numeric"))
			hints.ai_flags |= RAI_NUMERICHOST;
		if (!strcmp(argv[i], "twice"))
			times = 2;
	}
	while (times--) {
		if (rdma_getaddrinfo(argv[3], "7471", &hints, &found)) {
			perror("rdma_getaddrinfo");
			return 1;
		}
		print_path(found);
		print_source(found);
		rdma_freeaddrinfo(found);
	}
	return 0;
}
