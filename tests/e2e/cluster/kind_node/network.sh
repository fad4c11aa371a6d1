#!/bin/bash
# A small stand-in for kindnetd: the CNI configuration for this node's pods, routes to those of the other nodes, and
# masquerade of what leaves the network of pods.
set -u
SA=/var/run/secrets/kubernetes.io/serviceaccount
API=https://${CONTROL_PLANE_ENDPOINT:-$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT}
get() { curl -sS --fail --max-time 10 --cacert $SA/ca.crt -H "Authorization: Bearer $(cat $SA/token)" "$API$1"; }
masq() {
  iptables -w -t nat -N KIND-MASQ-AGENT 2>/dev/null
  for n in ${POD_SUBNET//,/ }; do case $n in *:*) ;; *)
    iptables -w -t nat -C KIND-MASQ-AGENT -d $n -j RETURN 2>/dev/null || iptables -w -t nat -I KIND-MASQ-AGENT -d $n -j RETURN;; esac; done
  iptables -w -t nat -C KIND-MASQ-AGENT -j MASQUERADE 2>/dev/null || iptables -w -t nat -A KIND-MASQ-AGENT -j MASQUERADE
  iptables -w -t nat -C POSTROUTING -m addrtype ! --dst-type LOCAL -j KIND-MASQ-AGENT 2>/dev/null ||
    iptables -w -t nat -A POSTROUTING -m addrtype ! --dst-type LOCAL -j KIND-MASQ-AGENT
}
last=
while :; do
  if nodes=$(get /api/v1/nodes); then
    masq
    while read -r ip cidr; do
      [ "$cidr" = null ] && continue
      if [ "$ip" = "$HOST_IP" ]; then
        if [ "$cidr" != "$last" ]; then
          cat > /etc/cni/net.d/.tmp <<C
{"cniVersion":"0.3.1","name":"kindnet","plugins":[
 {"type":"ptp","ipMasq":false,"ipam":{"type":"host-local","dataDir":"/run/cni-ipam-state","routes":[{"dst":"0.0.0.0/0"}],"ranges":[[{"subnet":"$cidr"}]]},"mtu":1500},
 {"type":"portmap","capabilities":{"portMappings":true}}]}
C
          mv /etc/cni/net.d/.tmp /etc/cni/net.d/10-kindnet.conflist; last=$cidr; echo "cni config for $cidr"
        fi
      else ip route replace "$cidr" via "$ip" || echo "route $cidr via $ip failed"; fi
    done < <(jq -r '.items[] | "\([.status.addresses[]|select(.type=="InternalIP").address][0]) \(.spec.podCIDR)"' <<<"$nodes")
  fi
  sleep 5
done
