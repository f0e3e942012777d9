package s3store

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

var _ objectstore.UploadSweeper = (*Store)(nil)

// SweepUploads implements objectstore.UploadSweeper: one request for each 1,000 incomplete
// multipart uploads, and one for each that is aborted. It needs permissions that plain reading and
// writing does not (s3:ListBucketMultipartUploads, s3:AbortMultipartUpload); without them it is
// ErrAccess.
func (s *Store) SweepUploads(ctx context.Context, prefix string, abandoned func(objectstore.Upload) (bool, error)) (int, error) {
	if err := objectstore.CheckPrefix(prefix); err != nil {
		return 0, err
	}
	swept := 0
	pages := s3.NewListMultipartUploadsPaginator(s.client, &s3.ListMultipartUploadsInput{Bucket: &s.config.Bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if errorCode(err) == "NotImplemented" { // a server without such a list has nothing to find
			return swept, nil
		}
		if err != nil {
			return swept, opError("list uploads", prefix, err)
		}
		for i := range page.Uploads {
			key := aws.ToString(page.Uploads[i].Key)
			ok, err := abandoned(objectstore.Upload{Key: key, Begun: aws.ToTime(page.Uploads[i].Initiated)})
			if err != nil {
				return swept, err
			}
			if !ok {
				continue
			}
			_, err = s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
				Bucket: &s.config.Bucket, Key: &key, UploadId: page.Uploads[i].UploadId,
			})
			if err != nil && errorCode(err) != "NoSuchUpload" { // which ended meanwhile
				return swept, opError("abort upload", key, err)
			}
			swept++
		}
	}
	return swept, nil
}
