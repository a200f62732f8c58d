# The command in a container, with torch's CPU build. Build it in the root of the repository:
#
#   docker build --tag assay .
#   docker run --rm --init --volume assay:/home/assay/.assay assay compare demo --with sdpa_attention
#   docker run --rm --init --volume assay:/home/assay/.assay --publish 127.0.0.1:8765:8765 assay dashboard --host 0.0.0.0
#
# The volume `assay` is the home: runs, data and pages. The dashboard's link names the container; write 127.0.0.1 for it.
# There is no compiler in it, so the technique `compile` is not available.
FROM python:3.11-slim

COPY pyproject.toml README.md LICENSE constraints.txt /source/
COPY src /source/src

# The CPU build has a local version (+cpu), which pip prefers to the registry's CUDA build of the pinned version.
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu \
      --constraint /source/constraints.txt '/source[dashboard]' \
    && rm -r /source

RUN useradd --create-home assay && mkdir /home/assay/.assay && chown assay:assay /home/assay/.assay
USER assay
WORKDIR /home/assay
ENV ASSAY_HOME=/home/assay/.assay

ENTRYPOINT ["assay"]
CMD ["--help"]
