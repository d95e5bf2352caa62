/* SPDX-License-Identifier: GPL-2.0-only OR Linux-OpenIB */
/* The path to a name or an IP address: resolve DESTINATION [SOURCE] */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/ib_acm.h>

int main(int argc, char **argv)
{
	struct ib_path_record path;
	int result;

	if (argc < 2)
		return 2;
	result = ib_acm_resolve(argc > 2 ? argv[2] : NULL, argv[1], 0, &path, NULL);
	if (result) {
		fprintf(stderr, "%s: %s\n", argv[1], result > 0 ? ib_acm_status_str(result) : strerror(errno));
		return 1;
	}
	/* Everything in a record is in network order. */
	printf("from LID %u to LID %u, SL %u, P_Key 0x%04x, MTU %u\n", ntohs(path.slid), ntohs(path.dlid),
	       ntohs(path.qosclass_sl) & 0xf, ntohs(path.pkey), 128 << (path.mtu & 0x3f));
	return 0;
}
