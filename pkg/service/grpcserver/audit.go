package grpcserver

import (
	"context"
	"log/slog"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// auditedCall is what the audit log has of one call.
type auditedCall struct {
	method  string
	user    string
	allowed bool          // by the review
	request proto.Message // the first one of a stream; nil before it came
}

// noteRequest notes the first message of a call.
func (c *auditedCall) noteRequest(m any) {
	if request, ok := m.(proto.Message); ok && c.request == nil {
		c.request = request
	}
}

// auditedText is how many bytes of a field of a request are logged.
const auditedText = 253

// auditCall logs a call that changed or revealed something, or was to, when it has ended with err. Calls
// that were refused without knowing the user are left out: anyone can make any number of them.
func (c interceptorChain) auditCall(ctx context.Context, call *auditedCall, err error) {
	code := status.Code(err)
	known := call.allowed || call.user != ""
	if isOpenMethod(call.method) || code == codes.Unauthenticated || !known || c.audited == nil || !c.audited(call.method) {
		return
	}
	from := ""
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	c.log.LogAttrs(ctx, slog.LevelInfo, "Call audited", slog.String("method", call.method), slog.String("user", call.user),
		slog.String("peer", from), slog.String("code", code.String()), slog.GroupAttrs("request", requestTexts(call.request)...))
}

// requestTexts are the fields of a request that hold one text each: names and identifiers. Others, above
// all bytes, maps and messages, may be large or hold what must not be logged.
func requestTexts(m proto.Message) []slog.Attr {
	if m == nil {
		return nil
	}
	var found []slog.Attr
	m.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.Kind() == protoreflect.StringKind && !field.IsList() && !field.IsMap() {
			text := value.String()
			found = append(found, slog.String(field.TextName(), text[:min(len(text), auditedText)]))
		}
		return true
	})
	return found
}
