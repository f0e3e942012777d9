package pluginhost

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec below
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// What an answer may take in memory beyond its own bytes, and what the parts of it that may be
// repeated are reckoned to take: a message of the protocol up to 160 bytes with the pointer to it,
// anything else up to 32. An empty message is two bytes on the wire, so the limit on an answer's
// bytes does not limit this.
const (
	maxDecoded  = 64 << 20
	messageCost = 160
	elementCost = 32
	leastWire   = 2
)

// errDecoded means that an answer would take too much memory.
var errDecoded = fmt.Errorf("answer has too many parts: larger than max %d bytes when decoded", maxDecoded)

// errWire means that bytes are no message.
var errWire = errors.New("not in the wire format")

// codec decodes answers of plugins after it has reckoned what that takes.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Unmarshal decodes. Only answers large enough to go over the limit are looked at before.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(proto.Message)
	if !ok || data.Len() <= maxDecoded/messageCost*leastWire {
		return c.CodecV2.Unmarshal(data, v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	budget := maxDecoded
	if err := spendBudget(&budget, message.ProtoReflect().Descriptor(), whole.ReadOnlyData()); err != nil {
		return err
	}
	return c.CodecV2.Unmarshal(mem.BufferSlice{whole}, v)
}

// spendBudget takes what the parts of a message cost off the budget.
func spendBudget(budget *int, of protoreflect.MessageDescriptor, wire []byte) error {
	for len(wire) > 0 {
		number, kind, n := protowire.ConsumeTag(wire)
		if n < 0 {
			return errWire
		}
		wire = wire[n:]
		size := protowire.ConsumeFieldValue(number, kind, wire)
		if size < 0 {
			return errWire
		}
		field := of.Fields().ByNumber(number)
		if err := spendField(budget, field, kind, wire[:size]); err != nil {
			return err
		}
		wire = wire[size:]
	}
	return nil
}

// spendField takes what one occurrence of a field costs off the budget; field is nil for one that
// is not known.
func spendField(budget *int, field protoreflect.FieldDescriptor, kind protowire.Type, value []byte) error {
	switch {
	case field == nil:
		return nil // kept as the bytes it came in
	case field.Message() != nil:
		*budget -= messageCost
	case !field.IsList():
		return nil
	case kind == protowire.BytesType && field.Kind() != protoreflect.StringKind && field.Kind() != protoreflect.BytesKind:
		*budget -= elementCost * len(value) // packed numbers, of a byte each at least
	default:
		*budget -= elementCost
	}
	if *budget < 0 {
		return errDecoded
	}
	if field.Message() == nil || kind != protowire.BytesType {
		return nil
	}
	inner, n := protowire.ConsumeBytes(value)
	if n < 0 {
		return errWire
	}
	return spendBudget(budget, field.Message(), inner)
}
