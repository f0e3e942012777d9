package node

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAConnectionIsThatOfThePodBehindTheService(t *testing.T) {
	c, ok := parseConnection("ipv4     2 tcp      6 86397 ESTABLISHED src=10.244.0.8 dst=10.96.230.60 sport=46312 dport=4222 " +
		"src=10.244.0.6 dst=10.244.0.8 sport=4222 dport=46312 [ASSURED] mark=0 zone=0 use=2\n")
	require.True(t, ok)
	require.Equal(t, Connection{Client: "10.244.0.8", Server: "10.244.0.6", Port: "4222"}, c)
	for _, line := range []string{
		"", "\n", "ipv4 2 tcp", "ipv4 2 tcp 6 1 SYN_SENT src=10.0.0.1 dst=10.0.0.2 sport=1 dport=2",
		"ipv4 2 udp 17 1 src=10.0.0.1 dst=10.0.0.2 sport=1 dport=53 src=10.0.0.2 dst=10.0.0.1 sport=53 dport=1 mark=0",
	} {
		_, ok := parseConnection(line)
		require.False(t, ok, "%q", line)
	}
}
