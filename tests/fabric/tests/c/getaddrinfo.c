/* Resolves its two arguments (source, destination) through librdmacm; prints the path's LIDs. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/sa.h>
#include <rdma/rdma_cma.h>

int main(int argc, char **argv)
{
	struct sockaddr_in src = { .sin_family = AF_INET };
	struct rdma_addrinfo hints = { .ai_family = AF_INET, .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_path_data *path;

	if (argc < 3 || inet_pton(AF_INET, argv[1], &src.sin_addr) != 1)
		return 2;
	hints.ai_src_addr = (struct sockaddr *)&src;
	hints.ai_src_len = sizeof(src);
	if (rdma_getaddrinfo(argv[2], "7471", &hints, &found)) {
		perror("rdma_getaddrinfo");
		return 1;
	}
	if (!found->ai_route_len) {
		printf("no route\n");
		return 3;
	}
	path = found->ai_route;
	printf("slid=%u dlid=%u\n", ntohs(path->path.slid), ntohs(path->path.dlid));
	rdma_freeaddrinfo(found);
	return 0;
}
