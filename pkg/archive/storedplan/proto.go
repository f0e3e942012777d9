package storedplan

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	planv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/plan/v1"
)

// Proto is the header as services send it. unstored is why the plan is in no bucket; nil where it is.
func (h *Header) Proto(unstored error) (*planv1.Plan, error) {
	spec := &structpb.Struct{}
	if err := protojson.Unmarshal(h.Spec, spec); err != nil {
		return nil, fmt.Errorf("%w: spec: %w", ErrCorrupt, err)
	}
	p := &planv1.Plan{
		Id: h.ID, Kind: h.Kind, Backup: h.Backup, Created: timestamppb.New(h.Created), Expires: timestamppb.New(h.Expires),
		Spec: spec, Annotations: h.Annotations, Counts: h.Counts, LeftOut: h.LeftOut, Messages: h.Messages,
	}
	if unstored != nil {
		p.Id, p.Unstored = "", unstored.Error()
	}
	return p, nil
}

// HeaderOf is the header that a service sent.
func HeaderOf(p *planv1.Plan) (*Header, error) {
	spec, err := protojson.Marshal(p.GetSpec())
	if err != nil {
		return nil, fmt.Errorf("encode the spec of a plan: %w", err)
	}
	return &Header{
		FormatVersion: FormatVersion, ID: p.GetId(), Kind: p.GetKind(), Backup: p.GetBackup(), Created: p.GetCreated().AsTime(), Expires: p.GetExpires().AsTime(),
		Spec: spec, Annotations: p.GetAnnotations(), Counts: p.GetCounts(), LeftOut: p.GetLeftOut(), Messages: p.GetMessages(),
	}, nil
}

// RowOf is the row that a service sent.
func RowOf(p *planv1.PlannedObject) *Row {
	return &Row{
		Group: p.GetGroup(), Version: p.GetVersion(), Kind: p.GetKind(), Namespace: p.GetNamespace(), Name: p.GetName(), TargetNamespace: p.GetTargetNamespace(),
		Action: p.GetAction(), Reasons: p.GetReasons(), Fields: p.GetFields(), Order: p.GetOrder(), Unknown: p.GetUnknown(),
	}
}

// Proto is the row as services send it.
func (r *Row) Proto() *planv1.PlannedObject {
	return &planv1.PlannedObject{
		Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, TargetNamespace: r.TargetNamespace,
		Action: r.Action, Reasons: r.Reasons, Fields: r.Fields, Order: r.Order, Unknown: r.Unknown,
	}
}
