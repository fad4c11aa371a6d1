# What plays kindnetd on each node, and what kube-proxy runs in.
FROM local/debian:bookworm-minbase
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      iptables nftables conntrack iproute2 kmod curl jq ca-certificates \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY network.sh /usr/local/bin/network.sh
ENTRYPOINT ["/bin/bash", "/usr/local/bin/network.sh"]
