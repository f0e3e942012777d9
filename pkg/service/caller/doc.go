// Package caller decides who may call a service. A caller sends "authorization: Bearer <token>" as gRPC
// metadata. In a cluster Kubernetes decides (Reviewer): it returns the user of a token (TokenReview),
// and whether its RBAC lets that user post to the method's path (SubjectAccessReview). The right is
// granted like any other, on the path of the method:
//
//	kind: ClusterRole
//	rules:
//	  - nonResourceURLs: ["/holdfast.queue.v1.QueueService/*"]
//	    verbs: ["post"]
//
// The service's own account needs to create tokenreviews.authentication.k8s.io and
// subjectaccessreviews.authorization.k8s.io, which the ClusterRole system:auth-delegator grants.
//
// The services of one `holdfast up` and their user recognise each other by a token that every start
// creates, in a file that only the user can read (AuthorizeToken): on a machine with several users,
// loopback is open to all of them.
package caller
