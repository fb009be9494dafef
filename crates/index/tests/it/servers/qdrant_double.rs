//! A double of a Qdrant server: not the real one, which no registry has.
//!
//! It speaks the real protocol, on the server traits that the client's crate
//! ships, keeps points in memory and compares a question with every vector. It
//! knows as much of filters as is asked here and refuses the rest, so that what
//! passes on it is what was meant. With `FRACTAL_TEST_QDRANT_URL` the same
//! tests run against a real server.

use ::qdrant_client::qdrant::collections_server::{Collections, CollectionsServer};
use ::qdrant_client::qdrant::condition::ConditionOneOf;
use ::qdrant_client::qdrant::r#match::MatchValue;
use ::qdrant_client::qdrant::points_selector::PointsSelectorOneOf;
use ::qdrant_client::qdrant::points_server::{Points, PointsServer};
use ::qdrant_client::qdrant::{self as api, *};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use tonic::{Request, Response, Status};

/// The largest message that a real server takes.
const MESSAGE_BYTES_MAX: usize = 32 << 20;

#[derive(Clone)]
struct Point {
    id: PointId,
    vector: Vec<f32>,
    payload: HashMap<String, Value>,
}

struct Collection {
    dimensions: usize,
    points: BTreeMap<String, Point>,
}

/// What it keeps, also while it is down.
#[derive(Clone)]
pub struct Data {
    collections: Arc<Mutex<BTreeMap<String, Collection>>>,
    /// What callers must show.
    api_key: &'static str,
}

/// A double that runs; dropped, it is gone with all connections.
pub struct Double {
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Double {
    pub fn start(address: SocketAddr, data: &Data) -> Double {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let data = data.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let points =
                PointsServer::new(data.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
            let served = tonic::transport::Server::builder()
                .add_service(CollectionsServer::new(data))
                .add_service(points)
                .serve(address);
            // Dropped with the runtime, connections break off.
            runtime.expect("a runtime").block_on(async {
                tokio::select! { served = served => served.expect("a port"), _ = stopped => {} }
            });
        });
        while std::net::TcpStream::connect(address).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Double { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.stop.take().map(|stop| stop.send(()));
        self.thread.take().map(JoinHandle::join);
    }
}

type Answer<T> = Result<Response<T>, Status>;

fn answer<T>(value: T) -> Answer<T> {
    Ok(Response::new(value))
}

impl Data {
    pub fn new(api_key: &'static str) -> Data {
        Data { collections: Arc::default(), api_key }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Collection>> {
        self.collections.lock().expect("nobody panics with it")
    }

    fn admit<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let shown = request.metadata().get("api-key").and_then(|key| key.to_str().ok());
        match shown == Some(self.api_key) {
            true => Ok(()),
            false => Err(Status::unauthenticated("Must provide an API key")),
        }
    }

    fn with<T>(
        &self,
        name: &str,
        work: impl FnOnce(&mut Collection) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let mut collections = self.lock();
        let missing =
            || Status::not_found(format!("Not found: Collection `{name}` doesn't exist!"));
        work(collections.get_mut(name).ok_or_else(missing)?)
    }

    fn make(&self, request: CreateCollection) -> Answer<CollectionOperationResponse> {
        let Some(vectors_config::Config::Params(params)) =
            request.vectors_config.and_then(|config| config.config)
        else {
            return Err(Status::invalid_argument("one kind of vectors is known"));
        };
        assert_eq!(params.distance, Distance::Cosine as i32);
        let mut collections = self.lock();
        if collections.contains_key(&request.collection_name) {
            return Err(Status::already_exists("it exists"));
        }
        let collection = Collection { dimensions: params.size as usize, points: BTreeMap::new() };
        collections.insert(request.collection_name, collection);
        answer(CollectionOperationResponse { result: true, time: 0.0 })
    }

    fn exists(&self, request: CollectionExistsRequest) -> Answer<CollectionExistsResponse> {
        let exists = self.lock().contains_key(&request.collection_name);
        answer(CollectionExistsResponse { result: Some(CollectionExists { exists }), time: 0.0 })
    }

    fn put(&self, request: UpsertPoints) -> Answer<PointsOperationResponse> {
        self.with(&request.collection_name, |collection| {
            for point in request.points {
                let id = point.id.ok_or_else(|| Status::invalid_argument("no id"))?;
                let vector = unit(numbers(point.vectors)?);
                let (expected, found) = (collection.dimensions, vector.len());
                if expected != found {
                    let why =
                        format!("Vector dimension error: expected dim: {expected}, got {found}");
                    return Err(Status::invalid_argument(why));
                }
                let point = Point { id: id.clone(), vector, payload: point.payload };
                collection.points.insert(format!("{id:?}"), point);
            }
            done()
        })
    }

    fn remove(&self, request: DeletePoints) -> Answer<PointsOperationResponse> {
        let which = request.points.and_then(|points| points.points_selector_one_of);
        self.with(&request.collection_name, |collection| {
            match which {
                Some(PointsSelectorOneOf::Points(list)) => {
                    list.ids
                        .iter()
                        .for_each(|id| drop(collection.points.remove(&format!("{id:?}"))));
                }
                Some(PointsSelectorOneOf::Filter(filter)) => {
                    let passing = passing(collection, Some(&filter))?;
                    let ids: Vec<String> =
                        passing.iter().map(|point| format!("{:?}", point.id)).collect();
                    ids.iter().for_each(|id| drop(collection.points.remove(id)));
                }
                None => return Err(Status::invalid_argument("which points?")),
            }
            done()
        })
    }

    fn find(&self, request: GetPoints) -> Answer<GetResponse> {
        self.with(&request.collection_name, |collection| {
            let ids = request.ids.iter().map(|id| format!("{id:?}"));
            let found = ids.filter_map(|id| collection.points.get(&id)).map(retrieved).collect();
            answer(GetResponse { result: found, time: 0.0, usage: None })
        })
    }

    fn some(&self, request: ScrollPoints) -> Answer<ScrollResponse> {
        self.with(&request.collection_name, |collection| {
            let limit = request.limit.unwrap_or(10) as usize;
            let found = passing(collection, request.filter.as_ref())?;
            let result = found.into_iter().take(limit).map(retrieved).collect();
            answer(ScrollResponse { next_page_offset: None, result, time: 0.0, usage: None })
        })
    }

    fn how_many(&self, request: CountPoints) -> Answer<CountResponse> {
        self.with(&request.collection_name, |collection| {
            let count = passing(collection, request.filter.as_ref())?.len() as u64;
            answer(CountResponse { result: Some(CountResult { count }), time: 0.0, usage: None })
        })
    }

    fn nearest(&self, request: QueryPoints) -> Answer<QueryResponse> {
        assert_eq!(request.params.and_then(|params| params.exact), Some(true));
        let question = match request.query.and_then(|query| query.variant) {
            Some(query::Variant::Nearest(VectorInput {
                variant: Some(vector_input::Variant::Dense(dense)),
            })) => unit(dense.data),
            _ => return Err(Status::invalid_argument("only the nearest are known")),
        };
        self.with(&request.collection_name, |collection| {
            let mut found: Vec<ScoredPoint> = passing(collection, request.filter.as_ref())?
                .into_iter()
                .map(|point| scored(point, &question))
                .collect();
            found.sort_by(|a, b| b.score.total_cmp(&a.score));
            found.truncate(request.limit.unwrap_or(10) as usize);
            answer(QueryResponse { result: found, time: 0.0, usage: None })
        })
    }
}

fn done() -> Answer<PointsOperationResponse> {
    let status = UpdateStatus::Completed as i32;
    let result = Some(UpdateResult { operation_id: Some(1), status });
    answer(PointsOperationResponse { result, time: 0.0, usage: None })
}

fn retrieved(point: &Point) -> RetrievedPoint {
    let (id, payload) = (Some(point.id.clone()), point.payload.clone());
    RetrievedPoint { id, payload, ..RetrievedPoint::default() }
}

fn scored(point: &Point, question: &[f32]) -> ScoredPoint {
    let score = point.vector.iter().zip(question).map(|(a, b)| a * b).sum();
    let (id, payload) = (Some(point.id.clone()), point.payload.clone());
    ScoredPoint { id, payload, score, ..ScoredPoint::default() }
}

/// Cosine is the product of vectors of length one, which the real server keeps.
fn unit(vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    vector.into_iter().map(|number| number / length).collect()
}

fn numbers(vectors: Option<Vectors>) -> Result<Vec<f32>, Status> {
    let unknown = || Status::invalid_argument("only plain vectors are known");
    match vectors.and_then(|vectors| vectors.vectors_options) {
        Some(vectors::VectorsOptions::Vector(vector)) => match vector.vector {
            Some(api::vector::Vector::Dense(dense)) => Ok(dense.data),
            #[expect(deprecated, reason = "what older clients send")]
            None => Ok(vector.data),
            _ => Err(unknown()),
        },
        _ => Err(unknown()),
    }
}

fn passing<'a>(
    collection: &'a Collection,
    filter: Option<&Filter>,
) -> Result<Vec<&'a Point>, Status> {
    let mut found = Vec::new();
    for point in collection.points.values() {
        if filter.map_or(Ok(true), |filter| passes(point, filter))? {
            found.push(point);
        }
    }
    Ok(found)
}

fn passes(point: &Point, filter: &Filter) -> Result<bool, Status> {
    if !filter.should.is_empty() || filter.min_should.is_some() {
        return Err(Status::unimplemented("no such filter in this double"));
    }
    for condition in &filter.must {
        if !holds(point, condition)? {
            return Ok(false);
        }
    }
    for condition in &filter.must_not {
        if holds(point, condition)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn holds(point: &Point, condition: &Condition) -> Result<bool, Status> {
    let Some(ConditionOneOf::Field(field)) = &condition.condition_one_of else {
        return Err(Status::unimplemented("no such condition in this double"));
    };
    let value = point.payload.get(&field.key);
    let text = value.and_then(Value::as_str);
    match field.r#match.as_ref().and_then(|it| it.match_value.as_ref()) {
        Some(MatchValue::Keyword(word)) => Ok(text == Some(word)),
        Some(MatchValue::Keywords(words)) => {
            Ok(text.is_some_and(|text| words.strings.contains(text)))
        }
        Some(MatchValue::Integer(number)) => Ok(value.and_then(Value::as_integer) == Some(*number)),
        _ => Err(Status::unimplemented("no such match in this double")),
    }
}

type Later<'a, T> = Pin<Box<dyn Future<Output = Answer<T>> + Send + 'a>>;

/// Methods of a service as `async_trait` makes them: answered by a method of the
/// data, or not at all.
macro_rules! answers {
    ($($name:ident($asked:ty) -> $answer:ty $(= $how:ident)?;)*) => {
        $(fn $name<'life0, 'async_trait>(
            &'life0 self,
            request: Request<$asked>,
        ) -> Later<'async_trait, $answer>
        where
            'life0: 'async_trait,
            Self: 'async_trait,
        {
            Box::pin(async move {
                self.admit(&request)?;
                $(return self.$how(request.into_inner());)?
                #[allow(unreachable_code, reason = "where it is answered")]
                Err(Status::unimplemented(stringify!($name)))
            })
        })*
    };
}

impl Collections for Data {
    answers! {
        get(GetCollectionInfoRequest) -> GetCollectionInfoResponse;
        list(ListCollectionsRequest) -> ListCollectionsResponse;
        create(CreateCollection) -> CollectionOperationResponse = make;
        update(UpdateCollection) -> CollectionOperationResponse;
        delete(DeleteCollection) -> CollectionOperationResponse;
        update_aliases(ChangeAliases) -> CollectionOperationResponse;
        list_collection_aliases(ListCollectionAliasesRequest) -> ListAliasesResponse;
        list_aliases(ListAliasesRequest) -> ListAliasesResponse;
        collection_cluster_info(CollectionClusterInfoRequest) -> CollectionClusterInfoResponse;
        collection_exists(CollectionExistsRequest) -> CollectionExistsResponse = exists;
        update_collection_cluster_setup(UpdateCollectionClusterSetupRequest)
            -> UpdateCollectionClusterSetupResponse;
        create_shard_key(CreateShardKeyRequest) -> CreateShardKeyResponse;
        delete_shard_key(DeleteShardKeyRequest) -> DeleteShardKeyResponse;
        list_shard_keys(ListShardKeysRequest) -> ListShardKeysResponse;
    }
}

impl Points for Data {
    answers! {
        upsert(UpsertPoints) -> PointsOperationResponse = put;
        delete(DeletePoints) -> PointsOperationResponse = remove;
        get(GetPoints) -> GetResponse = find;
        update_vectors(UpdatePointVectors) -> PointsOperationResponse;
        delete_vectors(DeletePointVectors) -> PointsOperationResponse;
        set_payload(SetPayloadPoints) -> PointsOperationResponse;
        overwrite_payload(SetPayloadPoints) -> PointsOperationResponse;
        delete_payload(DeletePayloadPoints) -> PointsOperationResponse;
        clear_payload(ClearPayloadPoints) -> PointsOperationResponse;
        create_field_index(CreateFieldIndexCollection) -> PointsOperationResponse = index;
        delete_field_index(DeleteFieldIndexCollection) -> PointsOperationResponse;
        create_vector_name(CreateVectorNameRequest) -> PointsOperationResponse;
        delete_vector_name(DeleteVectorNameRequest) -> PointsOperationResponse;
        search(SearchPoints) -> SearchResponse;
        search_batch(SearchBatchPoints) -> SearchBatchResponse;
        search_groups(SearchPointGroups) -> SearchGroupsResponse;
        scroll(ScrollPoints) -> ScrollResponse = some;
        recommend(RecommendPoints) -> RecommendResponse;
        recommend_batch(RecommendBatchPoints) -> RecommendBatchResponse;
        recommend_groups(RecommendPointGroups) -> RecommendGroupsResponse;
        discover(DiscoverPoints) -> DiscoverResponse;
        discover_batch(DiscoverBatchPoints) -> DiscoverBatchResponse;
        count(CountPoints) -> CountResponse = how_many;
        update_batch(UpdateBatchPoints) -> UpdateBatchResponse;
        query(QueryPoints) -> QueryResponse = nearest;
        query_batch(QueryBatchPoints) -> QueryBatchResponse;
        query_groups(QueryPointGroups) -> QueryGroupsResponse;
        facet(FacetCounts) -> FacetResponse;
        search_matrix_pairs(SearchMatrixPoints) -> SearchMatrixPairsResponse;
        search_matrix_offsets(SearchMatrixPoints) -> SearchMatrixOffsetsResponse;
    }
}

impl Data {
    /// It looks at every point anyway.
    fn index(&self, request: CreateFieldIndexCollection) -> Answer<PointsOperationResponse> {
        self.with(&request.collection_name, |_| done())
    }
}
