package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

const (
	// getItemLocation is the location of the backup whose objects are read.
	getItemLocation = "getitem"
	// getItemCalls is how many objects are read one after the other.
	getItemCalls = 50
)

// measureGetItem measures what it takes to read one object out of a backup of huge objects in an S3 bucket: the
// bytes that the store sends for the first one, by a manifest-indexer that has read nothing before, and the
// median time of all.
func (b *bench) measureGetItem(ctx context.Context, count int) error {
	_, _ = fmt.Fprintf(b.Log, "one of %d objects of %d bytes\n", count, hugeBytes)
	if b.Huge < count { // else they are there
		if err := b.createObjects(ctx, namespaceOfHuge, count, hugeBytes); err != nil {
			return err
		}
	}
	server, store, err := startMeteredS3(ctx, filepath.Join(b.Dir, "getitem"))
	if err != nil {
		return err
	}
	defer server.Stop()
	defer store.Close()
	err = b.withFleet(ctx, fleet.Config{}, func(*fleet.Fleet) error {
		if err := b.jobs.meteredLocation(ctx, getItemLocation, server, store); err != nil {
			return err
		}
		backup, err := b.jobs.createBackup(ctx, getItemLocation, namespaceOfHuge, getItemLocation)
		if err != nil {
			return err
		}
		return b.jobs.awaitCompleted(ctx, backup)
	})
	if err != nil {
		return err
	}
	return b.withFleet(ctx, fleet.Config{}, func(services *fleet.Fleet) error {
		return b.readItems(ctx, services.Of("manifest-indexer")[0].GRPC, store)
	})
}

// readItems reads objects, each with its body.
func (b *bench) readItems(ctx context.Context, address string, store *storeMeter) error {
	connection, err := connectService(address)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	client := manifestv1.NewManifestServiceClient(connection)
	list, err := client.ListItems(ctx, &manifestv1.ListItemsRequest{Backup: getItemLocation, Kinds: []string{"configmaps"}, Namespace: namespaceOfHuge})
	if err != nil {
		return err
	}
	var took []time.Duration
	for i := range getItemCalls {
		item := list.GetItems()[i*len(list.GetItems())/getItemCalls]
		before, began := store.read.Load(), time.Now()
		got, err := client.GetItem(ctx, &manifestv1.GetItemRequest{Backup: getItemLocation, Kind: item.GetKind(), Namespace: item.GetNamespace(), Name: item.GetName(), WithBody: true})
		if err != nil {
			return err
		}
		if len(got.GetBody()) == 0 {
			return fmt.Errorf("item %s has no body", item.GetName())
		}
		took = append(took, time.Since(began))
		if i == 0 {
			b.figures.Set("getitem.bytes_read", float64(store.read.Load()-before))
		}
	}
	slices.Sort(took)
	b.figures.Set("getitem.ms", float64(took[len(took)/2].Microseconds())/1000)
	return nil
}
