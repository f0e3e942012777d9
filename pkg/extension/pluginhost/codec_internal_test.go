package pluginhost

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/holdfast/plugin/v1"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

// splitWire is the wire in pieces, as a connection delivers it.
func splitWire(wire []byte) mem.BufferSlice {
	half := len(wire) / 2
	return mem.BufferSlice{mem.SliceBuffer(wire[:half]), mem.SliceBuffer(wire[half:])}
}

func TestSmallAnswersThatDecodeToMuchAreRefused(t *testing.T) {
	t.Parallel()
	c := newCodec()
	tooMany := 2 + maxDecoded/messageCost
	require.ErrorIs(t, c.Unmarshal(splitWire(bytes.Repeat([]byte{0x12, 0}, tooMany)), new(velero.ExecuteResponse)), errDecoded)
	keys := 2 + maxDecoded/elementCost
	require.ErrorIs(t, c.Unmarshal(splitWire(bytes.Repeat([]byte{0x0a, 0}, keys)), new(velero.ListObjectsResponse)), errDecoded)
	inner, err := proto.Marshal(&pluginv1.Plugin{Touches: make([]string, keys)})
	require.NoError(t, err)
	nested := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), inner)
	require.ErrorIs(t, c.Unmarshal(splitWire(nested), new(pluginv1.DescribeResponse)), errDecoded)
}

func TestLargeAnswersOfOnePartAreDecoded(t *testing.T) {
	t.Parallel()
	sent := &velero.ExecuteResponse{
		Item:            bytes.Repeat([]byte{0x12, 0}, 3<<20),
		AdditionalItems: []*velero.ResourceIdentifier{{Group: "apps", Resource: "deployments", Namespace: "a", Name: "b"}},
	}
	wire, err := proto.Marshal(sent)
	require.NoError(t, err)
	got := new(velero.ExecuteResponse)
	require.NoError(t, newCodec().Unmarshal(splitWire(wire), got))
	require.True(t, proto.Equal(sent, got))
}

func FuzzSpend(f *testing.F) {
	f.Add([]byte{0x12, 0, 0x12, 0})
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte{0x13, 0x14})
	f.Fuzz(func(t *testing.T, wire []byte) {
		budget := maxDecoded
		err := spendBudget(&budget, new(velero.ExecuteResponse).ProtoReflect().Descriptor(), wire)
		if proto.Unmarshal(wire, new(velero.ExecuteResponse)) == nil {
			require.NoError(t, err, "what can be decoded is small here")
		}
	})
}
