/* Prints layouts and values of the headers that clients and providers of ibacm are built with. */
#include <stddef.h>
#include <stdio.h>

#include <infiniband/acm_prov.h>

#define SIZE(type) printf(#type " %zu %zu\n", sizeof(type), __alignof__(type))
#define FIELD(type, field) printf(#type "." #field " %zu %zu\n", offsetof(type, field), sizeof(((type *)0)->field))
#define START(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))
#define VALUE(name) printf(#name " %lld\n", (long long)(name))

int main(void)
{
	SIZE(struct acm_hdr);
	FIELD(struct acm_hdr, version);
	FIELD(struct acm_hdr, opcode);
	FIELD(struct acm_hdr, status);
	FIELD(struct acm_hdr, data);
	FIELD(struct acm_hdr, src_out);
	FIELD(struct acm_hdr, src_index);
	FIELD(struct acm_hdr, dst_index);
	FIELD(struct acm_hdr, length);
	FIELD(struct acm_hdr, tid);
	SIZE(union acm_ep_info);
	FIELD(union acm_ep_info, addr);
	FIELD(union acm_ep_info, name);
	FIELD(union acm_ep_info, path);
	SIZE(struct acm_ep_addr_data);
	FIELD(struct acm_ep_addr_data, flags);
	FIELD(struct acm_ep_addr_data, type);
	FIELD(struct acm_ep_addr_data, reserved);
	FIELD(struct acm_ep_addr_data, info);
	SIZE(struct acm_resolve_msg);
	START(struct acm_resolve_msg, data);
	SIZE(struct acm_perf_msg);
	START(struct acm_perf_msg, data);
	SIZE(struct acm_ep_config_data);
	FIELD(struct acm_ep_config_data, dev_guid);
	FIELD(struct acm_ep_config_data, port_num);
	FIELD(struct acm_ep_config_data, phys_port_cnt);
	FIELD(struct acm_ep_config_data, rsvd);
	FIELD(struct acm_ep_config_data, pkey);
	FIELD(struct acm_ep_config_data, addr_cnt);
	FIELD(struct acm_ep_config_data, prov_name);
	START(struct acm_ep_config_data, addrs);
	SIZE(struct acm_ep_query_msg);
	START(struct acm_ep_query_msg, data);
	SIZE(struct acm_msg);
	FIELD(struct acm_msg, hdr);
	FIELD(struct acm_msg, data);
	START(struct acm_msg, resolve_data);
	START(struct acm_msg, perf_data);
	FIELD(struct acm_msg, ep_data);

	SIZE(struct acm_device);
	FIELD(struct acm_device, verbs);
	FIELD(struct acm_device, dev_guid);
	SIZE(struct acm_port);
	FIELD(struct acm_port, dev);
	FIELD(struct acm_port, port_num);
	SIZE(struct acm_endpoint);
	FIELD(struct acm_endpoint, port);
	FIELD(struct acm_endpoint, pkey);
	SIZE(struct acm_address);
	FIELD(struct acm_address, endpoint);
	FIELD(struct acm_address, info);
	FIELD(struct acm_address, id_string);
	FIELD(struct acm_address, type);
	SIZE(struct acm_provider);
	FIELD(struct acm_provider, size);
	FIELD(struct acm_provider, version);
	FIELD(struct acm_provider, name);
	FIELD(struct acm_provider, open_device);
	FIELD(struct acm_provider, close_device);
	FIELD(struct acm_provider, open_port);
	FIELD(struct acm_provider, close_port);
	FIELD(struct acm_provider, open_endpoint);
	FIELD(struct acm_provider, close_endpoint);
	FIELD(struct acm_provider, add_address);
	FIELD(struct acm_provider, remove_address);
	FIELD(struct acm_provider, resolve);
	FIELD(struct acm_provider, query);
	FIELD(struct acm_provider, handle_event);
	FIELD(struct acm_provider, query_perf);
	SIZE(struct acm_sa_mad);
	FIELD(struct acm_sa_mad, context);
	FIELD(struct acm_sa_mad, umad);
	FIELD(struct acm_sa_mad, sa_mad);

	VALUE(ACM_VERSION);
	VALUE(ACM_PROV_VERSION);
	VALUE(ACM_OP_MASK);
	VALUE(ACM_OP_RESOLVE);
	VALUE(ACM_OP_PERF_QUERY);
	VALUE(ACM_OP_EP_QUERY);
	VALUE(ACM_OP_ACK);
	VALUE(ACM_STATUS_SUCCESS);
	VALUE(ACM_STATUS_ENOMEM);
	VALUE(ACM_STATUS_EINVAL);
	VALUE(ACM_STATUS_ENODATA);
	VALUE(ACM_STATUS_ENOTCONN);
	VALUE(ACM_STATUS_ETIMEDOUT);
	VALUE(ACM_STATUS_ESRCADDR);
	VALUE(ACM_STATUS_ESRCTYPE);
	VALUE(ACM_STATUS_EDESTADDR);
	VALUE(ACM_STATUS_EDESTTYPE);
	VALUE(ACM_FLAGS_QUERY_SA);
	VALUE(ACM_FLAGS_NODELAY);
	VALUE(ACM_MSG_HDR_LENGTH);
	VALUE(ACM_MAX_ADDRESS);
	VALUE(ACM_MSG_EP_LENGTH);
	VALUE(ACM_MAX_PROV_NAME);
	VALUE(ACM_MSG_DATA_LENGTH);
	VALUE(ACM_EP_INFO_NAME);
	VALUE(ACM_EP_INFO_ADDRESS_IP);
	VALUE(ACM_EP_INFO_ADDRESS_IP6);
	VALUE(ACM_EP_INFO_PATH);
	VALUE(ACM_EP_FLAG_SOURCE);
	VALUE(ACM_EP_FLAG_DEST);
	VALUE(ACM_CNTR_ERROR);
	VALUE(ACM_CNTR_RESOLVE);
	VALUE(ACM_CNTR_NODATA);
	VALUE(ACM_CNTR_ADDR_QUERY);
	VALUE(ACM_CNTR_ADDR_CACHE);
	VALUE(ACM_CNTR_ROUTE_QUERY);
	VALUE(ACM_CNTR_ROUTE_CACHE);
	VALUE(ACM_MAX_COUNTER);
	return 0;
}
