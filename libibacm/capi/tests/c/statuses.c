/* The names of statuses in the library's header beside those of rdma-core's. */
#include <infiniband/acm.h>
#include <infiniband/ib_acm.h>

#include <stdio.h>

#define SAME(name) _Static_assert((int)IB_##name == (int)name, #name)

SAME(ACM_STATUS_SUCCESS);
SAME(ACM_STATUS_ENOMEM);
SAME(ACM_STATUS_EINVAL);
SAME(ACM_STATUS_ENODATA);
SAME(ACM_STATUS_ENOTCONN);
SAME(ACM_STATUS_ETIMEDOUT);
SAME(ACM_STATUS_ESRCADDR);
SAME(ACM_STATUS_ESRCTYPE);
SAME(ACM_STATUS_EDESTADDR);
SAME(ACM_STATUS_EDESTTYPE);

int main(void)
{
	return puts(ib_acm_status_str(IB_ACM_STATUS_ENODATA)) < 0;
}
