# Builds the release archive and puts it into a small image: docker build -t ringtrain .
# Then: docker run --rm -v "$PWD":/work ringtrain train --config long_ctx.yaml
FROM debian:12 AS build
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates git
COPY . /src
RUN cd /src && ./scripts/package /release && mkdir /opt/ringtrain && \
    tar -C /opt/ringtrain --strip-components=1 -xf /release/ringtrain-*-linux-x86_64.tar.gz

FROM debian:12-slim
COPY --from=build /opt/ringtrain /opt/ringtrain
ENV PATH=/opt/ringtrain/bin:$PATH
WORKDIR /work
ENTRYPOINT ["ringtrain"]
CMD ["--help"]
