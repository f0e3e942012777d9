package apply

import (
	"errors"
	"net/http"
	"regexp"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrTerminating is the failure of a Request in whose way an object is that is being deleted: its
// name is free afterwards. Such an object is not there any more for anything that would refer to
// it.
var ErrTerminating = errors.New("one of that name exists and is being deleted")

// The words of kube-apiserver 1.36 for a webhook that it could not ask.
var (
	admissionWebhook  = regexp.MustCompile(`failed calling webhook "([^"]+)"`)
	conversionWebhook = regexp.MustCompile(`conversion webhook for (.+?) failed`)
)

// MayExist reports that an object of that name may be why its creation failed. Quotas, admission and
// validation judge an object before the API server looks at its name, so that what they refuse may be
// there all the same.
func MayExist(err error) bool {
	if apierrors.IsAlreadyExists(err) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusInternalServerError:
		return true
	}
	return false
}

// webhookService is the address of a webhook behind a Service, in the text of the failure.
var webhookService = regexp.MustCompile(`"https?://[^./"]+\.([^./"]+)\.svc[:/]`)

// WebhookNamespace returns the namespace of the Service behind a webhook that could not be called; "" for
// every other error.
func WebhookNamespace(err error) string {
	var status apierrors.APIStatus
	if by, _ := Internal(err); by == "" || !errors.As(err, &status) {
		return ""
	}
	if m := webhookService.FindStringSubmatch(status.Status().Message); m != nil {
		return m[1]
	}
	return ""
}

// requiresStatus reports that an object was refused because it has no status.
func requiresStatus(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "status" && cause.Type == metav1.CauseTypeFieldValueRequired
	})
}

// Internal reports that the server failed at a request (500), for a reason other than the object: a
// webhook could not be called, or the server has an internal error. by names the webhook, "" where
// there is none: requests that need the same one fail together.
func Internal(err error) (by string, ok bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusInternalServerError {
		return "", false
	}
	message := status.Status().Message
	if m := admissionWebhook.FindStringSubmatch(message); m != nil {
		return "webhook " + m[1], true
	}
	if m := conversionWebhook.FindStringSubmatch(message); m != nil {
		return "conversion of " + m[1], true
	}
	return "", true
}
