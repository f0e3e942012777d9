// Package volumes has volume-mover remove the snapshots of a backup from the repositories of volume data: the
// deletion opens none itself.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/kube/leaderelection"
	volumev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/volume/v1"
)

const (
	// mover is the service, and the name of its duty.
	mover = "volume-mover"
	// callTimeout is more than what volume-mover waits for the Pod that does the work.
	callTimeout = 11 * time.Minute
)

// Forgetter calls volume-mover. It is safe for concurrent use.
type Forgetter struct {
	Reader    client.Reader // uncached
	Namespace string
	// Dial connects to an instance; service.Runtime does.
	Dial func(instance, address string) (*grpc.ClientConn, error)
}

// ForgetSnapshots removes snapshots from the repository that a location has for a namespace. Those that are
// not there count as removed.
func (f *Forgetter) ForgetSnapshots(ctx context.Context, location, namespace string, ids []string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	instance, address, err := leaderelection.FindHolder(ctx, f.Reader, f.Namespace, mover)
	if err != nil {
		return err
	}
	conn, err := f.Dial(instance, address)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", instance, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	_, err = volumev1.NewVolumeServiceClient(conn).ForgetSnapshots(ctx, &volumev1.ForgetSnapshotsRequest{
		Location: location, Namespace: namespace, SnapshotIds: ids,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", mover, errgrpc.FromStatus(err))
	}
	return nil
}
