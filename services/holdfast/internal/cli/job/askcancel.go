package job

import (
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/job/cancel"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// Caller is who the API server takes the caller for; empty when it does not say.
func Caller(ctx context.Context, c client.Client) string {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return "" // the job stops all the same
	}
	return review.Status.UserInfo.Username
}

// AskCancel writes the request on a job that may still be stopped. obj holds its newest state afterwards.
func AskCancel[T client.Object](ctx context.Context, c client.Client, clk clock.PassiveClock, obj T, by string, may func(T) error) error {
	return kube.Update(ctx, c, c, obj, func(o T) error {
		if err := may(o); err != nil {
			return err
		}
		return cancel.Ask(o, cancel.Request{By: by, Time: clk.Now().UTC().Truncate(time.Second)})
	})
}
