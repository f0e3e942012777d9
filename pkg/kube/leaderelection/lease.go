package leaderelection

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

// leasePrefix begins the names of the Leases of duties.
const leasePrefix = "holdfast-duty-"

// IsDuty reports whether a Lease is of a duty.
func IsDuty(lease *coordinationv1.Lease) bool { return strings.HasPrefix(lease.Name, leasePrefix) }

// leaseLock lets client-go's leader election run on the services' own client. It implements
// resourcelock.Interface; one elector uses it, from one goroutine.
type leaseLock struct {
	cfg      Config
	object   *coordinationv1.Lease
	written  time.Time // when the last write began that succeeded
	acquired atomic.Bool
}

var _ resourcelock.Interface = (*leaseLock)(nil)

func (l *leaseLock) leaseKey() types.NamespacedName {
	return types.NamespacedName{Namespace: l.cfg.Namespace, Name: leasePrefix + l.cfg.Name}
}

// Get implements resourcelock.Interface.
func (l *leaseLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	object := &coordinationv1.Lease{}
	if err := l.cfg.Reader.Get(ctx, l.leaseKey(), object); err != nil {
		return nil, nil, err
	}
	l.object = object
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&object.Spec)
	raw, err := json.Marshal(record)
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *leaseLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	object := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.cfg.Namespace, Name: l.leaseKey().Name},
		Spec:       resourcelock.LeaderElectionRecordToLeaseSpec(&record),
	}
	l.setAddress(object)
	begin := time.Now() //nolint:forbidigo // the clock of client-go's elector
	if err := l.cfg.Client.Create(ctx, object); err != nil {
		return err
	}
	l.object, l.written = object, begin
	return nil
}

// Update implements resourcelock.Interface: a swap on the version last read. A renewal that comes
// early is not sent.
func (l *leaseLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	begin := time.Now() //nolint:forbidigo // the clock of client-go's elector
	if l.isRenewal(&record) && begin.Sub(l.written) < l.cfg.Timeout/writesPerTimeout {
		return nil
	}
	if l.object == nil {
		if _, _, err := l.Get(ctx); err != nil {
			return err
		}
	}
	object := l.object.DeepCopy()
	object.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&record)
	l.setAddress(object)
	if err := l.cfg.Client.Update(ctx, object); err != nil {
		l.written = time.Time{}
		return err
	}
	l.object, l.written = object, begin
	return nil
}

// setAddress writes where the holder answers.
func (l *leaseLock) setAddress(object *coordinationv1.Lease) {
	if l.cfg.Address != "" {
		metav1.SetMetaDataAnnotation(&object.ObjectMeta, holdfast.AnnotationAddress, l.cfg.Address)
	}
}

// isRenewal reports that a record only renews what this process wrote.
func (l *leaseLock) isRenewal(record *resourcelock.LeaderElectionRecord) bool {
	return l.object != nil && record.HolderIdentity == l.Identity() && ptr.Deref(l.object.Spec.HolderIdentity, "") == l.Identity() &&
		ptr.Deref(l.object.Spec.LeaseTransitions, 0) == int32(record.LeaderTransitions)
}

// RecordEvent implements resourcelock.Interface. The elector calls it before it starts the duty,
// by which term detects that there is one to wait for.
func (l *leaseLock) RecordEvent(event string) {
	if event == "became leader" {
		l.acquired.Store(true)
	}
}

// Identity implements resourcelock.Interface.
func (l *leaseLock) Identity() string { return l.cfg.Instance }

// Describe implements resourcelock.Interface.
func (l *leaseLock) Describe() string { return l.leaseKey().String() }
