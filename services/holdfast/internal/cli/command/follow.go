package command

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// readEvery is how often an object that a command waits for is read.
const readEvery = 500 * time.Millisecond

// WaitUntil reads obj twice a second, and calls seen after each read until seen returns true or an
// error, or ctx ends. An API server that cannot be reached is waited for; an object that is gone, or
// may not be read, ends the wait with that error.
func WaitUntil(ctx context.Context, c client.Reader, clk clock.WithTicker, obj client.Object, seen func() (bool, error)) error {
	ticker := clk.NewTicker(readEvery)
	defer ticker.Stop()
	for {
		err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		switch {
		case err == nil:
			if done, err := seen(); done || err != nil {
				return err
			}
		case isFinal(err):
			return fmt.Errorf("wait for %s: %w", obj.GetName(), err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C():
		}
	}
}

// isFinal reports whether asking again cannot help.
func isFinal(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsBadRequest(err)
}
