package job_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
)

// Catches a hand-over that frees whatever claim is there: the restore was taken over, or its name,
// while this process was paused, and a third one would begin beside the holder. Another object can
// carry the very same claim; only its UID differs.
func TestAnInterruptedRestoreFreesItsOwnClaimAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		there  claim.Claim
		change func(t *testing.T, b *bench, there claim.Claim)
	}{
		"taken over": {claim.Claim{Owner: "other", Epoch: 2}, func(t *testing.T, b *bench, there claim.Claim) {
			r := b.getRestore(t)
			require.NoError(t, claim.Set(r, there))
			require.NoError(t, b.client.Update(t.Context(), r))
		}},
		"replaced by another of its name": {claim.Claim{Owner: "me", Epoch: 1}, func(t *testing.T, b *bench, there claim.Claim) {
			r := b.getRestore(t)
			r.Finalizers = nil
			require.NoError(t, b.client.Update(t.Context(), r))
			require.NoError(t, b.client.Delete(t.Context(), r))
			b.createRestore(t, false, func(r *velerov1.Restore) {
				r.UID, r.Status.Phase = "uid-other", velerov1.RestorePhaseInProgress
				require.NoError(t, claim.Set(r, there))
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			ctx, stop := context.WithCancel(t.Context())
			prepareInterrupted(t, b, func() {
				stop()
				tt.change(t, b, tt.there)
			})
			if err := b.runner.Run(ctx, "r", "uid-r"); err != nil { // none where the loss was noticed before the stop
				require.ErrorIs(t, err, context.Canceled)
			}
			held, _, err := claim.Parse(b.getRestore(t))
			require.NoError(t, err)
			require.Equal(t, tt.there, held)
		})
	}
}
