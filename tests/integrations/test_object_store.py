"""The server that the other tests rely on."""

import pytest
from botocore.exceptions import ClientError, HTTPClientError
from object_store import BUCKET, CUT, DROP

s3fs = pytest.importorskip("s3fs")


def test_objects_come_back_and_requests_are_counted(s3):
    url = s3.put("a/b.bin", b"0123456789")
    fs = s3fs.S3FileSystem(skip_instance_cache=True)
    assert fs.cat_file(url, start=2, end=5) == b"234"
    (request,) = s3.requests
    assert (request.method, request.key, request.range) == ("GET", "a/b.bin", "bytes=2-4")
    assert (request.status, request.answered) == (206, 3)
    assert s3.keys() == ["a/b.bin"]


@pytest.mark.parametrize(("fault", "error"), [(403, PermissionError), (DROP, HTTPClientError)])
def test_faults(s3, fault, error):
    s3.put("x", b"1")
    s3.fault = lambda request: fault
    fs = s3fs.S3FileSystem(skip_instance_cache=True)
    fs.retries = 1
    with pytest.raises(error):
        fs.cat_file(f"{BUCKET}/x")


def test_answer_is_cut(s3):
    s3.put("x", bytes(1000))
    s3.fault = lambda request: CUT if request.method == "GET" else None
    fs = s3fs.S3FileSystem(skip_instance_cache=True)
    fs.retries = 1
    with pytest.raises(Exception, match=r"payload|Incomplete|Broken"):
        fs.cat_file(f"{BUCKET}/x")


def test_uploads_that_are_not_complete(s3):
    upload = s3.client.create_multipart_upload(Bucket=BUCKET, Key="x")["UploadId"]
    assert (s3.uploads(), s3.keys()) == (["x"], [])
    s3.client.abort_multipart_upload(Bucket=BUCKET, Key="x", UploadId=upload)
    assert s3.uploads() == []


def test_existing_object_is_kept_on_request(s3):
    s3.put("x", b"old")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.client.put_object(Bucket=BUCKET, Key="x", Body=b"new", IfNoneMatch="*")
    assert s3.get("x") == b"old"
