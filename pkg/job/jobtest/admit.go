package jobtest

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// Admit admits a job in a test that needs no more than the error.
func Admit(ctx context.Context, l *ledger.Ledger, e ledger.Entry, limits ledger.Limits, while ...types.UID) error {
	_, err := l.Admit(ctx, e, limits, while...)
	return err
}
